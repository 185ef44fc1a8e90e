//! The coverage-guided target: compact bytes to a recording, and every report of it.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    leaktrace_fuzz::tell(&leaktrace_fuzz::expand(input), None);
});
