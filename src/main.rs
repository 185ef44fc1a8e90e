//! The `leaktrace` program's door. Declares the rooms it shares with the preload and never links the library, which
//! would carry our own `dlsym` into it.

#[forbid(unsafe_code)]
mod cli;
#[forbid(unsafe_code)]
#[path = "report/diff.rs"]
mod diff;
#[forbid(unsafe_code)]
mod export;
#[forbid(unsafe_code)]
#[path = "report/gate/mod.rs"]
mod gate;
#[forbid(unsafe_code)]
#[path = "report/html/mod.rs"]
mod html;
#[allow(dead_code, reason = "the half that runs inside the process is the preload's")]
#[forbid(unsafe_code)]
mod ledger;
#[forbid(unsafe_code)]
#[path = "symbol/native.rs"]
mod native_symbols;
#[forbid(unsafe_code)]
#[path = "report/ranks.rs"]
mod ranks;
#[allow(dead_code, reason = "the half that runs inside the process is the preload's")]
#[forbid(unsafe_code)]
mod report;
#[allow(dead_code, reason = "the half that runs inside the process is the preload's")]
#[forbid(unsafe_code)]
mod symbol;
#[forbid(unsafe_code)]
#[path = "report/terminal/mod.rs"]
mod terminal;
#[allow(dead_code, reason = "the writing half is the preload's")]
mod trace;

fn main() -> std::process::ExitCode {
    cli::main()
}
