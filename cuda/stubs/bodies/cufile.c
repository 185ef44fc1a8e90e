/* cuFile: reads and writes claim to have moved every byte. */

SIM(int64_t) cuFileRead(void *file, void *at, size_t bytes, int64_t offset, int64_t at_offset) { return (int64_t)bytes; }
SIM(int64_t) cuFileWrite(void *file, const void *at, size_t bytes, int64_t offset, int64_t at_offset) {
    return (int64_t)bytes;
}
