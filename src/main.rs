//! The `leaktrace` program's door. Declares the rooms it shares with the preload and never links the library, which
//! would carry our own `dlsym` into it.

#[forbid(unsafe_code)]
mod cli;
#[forbid(unsafe_code)]
mod export;
#[allow(dead_code, reason = "the half that runs inside the process is the preload's")]
#[forbid(unsafe_code)]
mod ledger;
#[forbid(unsafe_code)]
#[path = "symbol/native.rs"]
mod native_symbols;
#[allow(dead_code, reason = "the half that runs inside the process is the preload's")]
#[forbid(unsafe_code)]
mod report;
#[allow(dead_code, reason = "the half that runs inside the process is the preload's")]
#[forbid(unsafe_code)]
mod symbol;
#[allow(dead_code, reason = "the writing half is the preload's")]
mod trace;

fn main() -> std::process::ExitCode {
    cli::main()
}
