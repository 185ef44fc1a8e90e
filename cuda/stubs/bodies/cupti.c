/* CUPTI: subscribes, and never has anything to tell. */

/* Of the last CUDA 12, and of 13, whose numbers are those of CUDA. */
SIM(int) cuptiGetVersion(uint32_t *version) {
    OUT_INT(version, SIMGPU_MAJOR < 13 ? 28 : 130099);
    return 0;
}

enum { MAX_LIMIT_REACHED = 12 };

SIM(int) cuptiActivityGetNextRecord(void *buffer, size_t bytes, void **record) {
    OUT_SIZE(record, 0);
    return MAX_LIMIT_REACHED;
}
