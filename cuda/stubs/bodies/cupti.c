/* CUPTI: subscribes, and never has anything to tell. */

enum { MAX_LIMIT_REACHED = 12 };

SIM(int) cuptiActivityGetNextRecord(void *buffer, size_t bytes, void **record) {
    OUT_SIZE(record, 0);
    return MAX_LIMIT_REACHED;
}
