/* Tells the simulated runtime's one source which runtime it is, where it is linked into something else. */
const int simgpu_cudart_major = 12;
