/* Linked to a library that has `plugin`, and calls it. */
extern void plugin(void);
int main(void) {
    plugin();
    return 0;
}
