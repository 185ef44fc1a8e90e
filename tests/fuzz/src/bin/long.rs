//! Writes a long recording:  long FILE EVENTS SITES STEPS

use std::process::ExitCode;

use leaktrace_fuzz::{Long, long};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse().ok()).filter(|&n: &u64| n > 0);
    let (Some(file), Some(events), Some(sites), Some(steps)) =
        (arguments.first(), number(1), number(2), number(3))
    else {
        eprintln!("usage: long FILE EVENTS SITES STEPS");
        return ExitCode::from(2);
    };
    match std::fs::write(file, long(Long { events, sites, steps })) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{file}: {e}");
            ExitCode::FAILURE
        }
    }
}
