//! The program's commands. Each turns arguments into calls of the rooms and errors into one line; knows no format.

mod alive;
mod parts;
mod report;
mod run;
mod simulate;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::ledger::By;
use clap::{Parser, Subcommand, ValueEnum};

/// Bad usage, or input that cannot be read.
const BAD_INPUT: u8 = 2;

#[derive(Parser)]
#[command(name = "leaktrace", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program and record its GPU memory
    Run(Run),
    /// Say what a recording holds: what is retained, since when, by which line, and whether it is a leak
    Report(Report),
    /// Print what is alive by birth, for programs
    #[command(hide = true)]
    Alive(Alive),
}

#[derive(clap::Args)]
struct Run {
    /// Where the recording goes [default: leaktrace.%p.ltrace]; %p pid, %e program, %h host, %r rank
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// What ends a step: auto, optimizer, loop, backward, nvtx:NAME, call, every:SECONDS
    #[arg(long, value_name = "SOURCE")]
    step: Option<String>,
    /// Run it on a simulated GPU with so much memory (80G if none is given, or SIMGPU_MEM): the real PyTorch, no device
    /// needed
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    simulate: Option<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
struct Report {
    /// Recordings (*.ltrace)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// What was retained when this step ended
    #[arg(long, value_name = "N")]
    step: Option<u32>,
    /// Leave out findings somebody lives with: a file of KIND:PATTERN # reason, a rule per line, for instance
    /// leak:train.py:log_metrics. KIND: a finding's, * for all, or cache for what is meant to gather. PATTERN: function,
    /// file:function, file:line or file:line:function of a frame, with * for any text [env: LEAKTRACE_SUPPRESSIONS]
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// Show every frame of each stack, also the interpreter's and the dispatcher's own
    #[arg(long)]
    all_frames: bool,
    /// Read the steps by another source or level of loops, if it was recorded: optimizer, loop, loop:DEPTH, backward, call, …
    /// (the report lists them)
    #[arg(long, value_name = "SOURCE")]
    steps_by: Option<By>,
    /// Write there instead of the standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Alive {
    /// A recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// What went wrong, in one line.
struct Failure(String);

/// The program.
pub fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run::run(arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Alive(arguments) => alive::alive(&arguments),
    };
    done.unwrap_or_else(|Failure(line)| {
        eprintln!("leaktrace: {line}");
        ExitCode::from(BAD_INPUT)
    })
}
