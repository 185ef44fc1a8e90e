//! The program's commands. Each turns arguments into calls of the rooms and errors into one line; knows no format.

mod alive;
mod check;
mod diff;
mod doctor;
mod export;
mod gate;
mod input;
mod manual;
mod output;
mod parts;
mod report;
mod run;
mod simulate;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use leaktrace_core::ledger;
use leaktrace_core::ledger::verdict::Kind;
use output::Colour;

/// A gate failed.
const GATE: u8 = 1;
/// Bad usage, or input that cannot be read.
const BAD_INPUT: u8 = 2;

#[derive(Parser)]
#[command(name = "leaktrace", version, about, max_term_width = 100, subcommand_required = true)]
#[command(
    after_help = "Start with:\n  leaktrace run -- python train.py\n  leaktrace report leaktrace.*.ltrace"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program and record its GPU memory
    Run(Run),
    /// Say what recordings hold: what is retained, since when, by which line, and whether it is a leak
    Report(Report),
    /// Fail if there is a leak: the gate for CI
    Check(Check),
    /// Compare two runs, or two steps of one
    Diff(Diff),
    /// Write recordings in a format that other tools take
    Export(export::Arguments),
    /// Watch running programs by their recordings
    Top(Top),
    /// Say whether it would work here, without running the program
    Doctor(Doctor),
    /// Print completions for a shell
    Completions(Completions),
    /// Print the manual page
    Man,
    /// Print what is alive by birth, for programs
    #[command(hide = true)]
    Alive(Alive),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace run -- python train.py --epochs 1
  leaktrace run --out 'runs/%e.%r.ltrace' -- torchrun --nproc-per-node 8 train.py
  leaktrace run --fail-on leak -- pytest tests/test_training.py
  leaktrace run --fail-on leak --baseline leaks.json --github -- python train.py

Exit status: the program's own; with --fail-on, 1 if it was 0 and the gate failed.")]
struct Run {
    /// Where the recording goes [default: leaktrace.%p.ltrace]; %p pid, %e program, %h host, %r rank
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// What ends a step: auto, optimizer, loop, backward, range:NAME, api, every:SECONDS
    #[arg(long, value_name = "SOURCE")]
    step: Option<String>,
    /// Afterwards, fail if a process it recorded has a finding of this kind (several: leak,growing)
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    fail_on: Vec<FailOn>,
    /// Accept what grows by no more than this per step (with --fail-on); 4096, 64KiB, 1.5MiB
    #[arg(long, value_name = "N", requires = "fail_on", value_parser = gate::bytes)]
    max_bytes_per_step: Option<f64>,
    /// Leave out findings somebody lives with (with --fail-on); the file is described under `report --help`
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    suppressions: Option<PathBuf>,
    /// Accept the leaks in this file, as long as they do not grow faster (with --fail-on); `check --write-baseline` writes it
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    baseline: Option<PathBuf>,
    /// Print annotations for GitHub on the standard error (with --fail-on)
    #[arg(long, requires = "fail_on")]
    github: bool,
    /// Write SARIF 2.1.0 for code scanning (with --fail-on)
    #[arg(long, value_name = "OUT", requires = "fail_on")]
    sarif: Option<PathBuf>,
    /// Run it on a simulated GPU with so much memory (80G if none is given, or SIMGPU_MEM): the real PyTorch, no device
    /// needed
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    simulate: Option<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace report leaktrace.4711.ltrace
  leaktrace report leaktrace.4711.ltrace --since 100 --by function
  leaktrace report runs/                     one report over all ranks
  leaktrace report leaktrace.4711.ltrace --format json -o report.json

Suppressions, one a line: KIND:PATTERN  # reason, for instance  leak:train.py:log_metrics  # until v2
  KIND: a finding's, * for all, or cache for what is meant to gather.
  PATTERN: function, file:function, file:line or file:line:function of a frame, with * for any text.

Exit status: 0 fine, 2 bad usage or unreadable input.")]
struct Report {
    /// Recordings (*.ltrace), or folders of them; several make one report over all of them
    #[arg(required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// How it is written; html: one page that opens from the disk, with timeline, flame graph and segments
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// What was retained when this step ended
    #[arg(long, value_name = "N")]
    step: Option<u32>,
    /// What has come since this step ended and is retained
    #[arg(long, value_name = "N")]
    since: Option<u32>,
    /// What a row of the table of retained memory stands for; cohort: the step it was born in
    #[arg(long, value_enum, default_value = "site")]
    by: By,
    /// Every row, place and frame, not only the first
    #[arg(long)]
    all: bool,
    /// Leave out findings somebody lives with (below) [env: LEAKTRACE_SUPPRESSIONS]
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// Show every frame of each stack, also the interpreter's and the dispatcher's own
    #[arg(long)]
    all_frames: bool,
    /// Read the steps by another source or level of loops, if it was recorded: optimizer, loop, loop:DEPTH, backward, call, …
    /// (the report lists them)
    #[arg(long, value_name = "SOURCE")]
    steps_by: Option<ledger::BoundarySource>,
    /// Colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Colour,
    /// Write there instead of the standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace check runs/
  leaktrace check leaktrace.*.ltrace --max-bytes-per-step 4KiB --github
  leaktrace check runs/ --sarif leaktrace.sarif
  leaktrace check runs/ --baseline leaks.json --write-baseline     accept what there is
  leaktrace check runs/ --baseline leaks.json                      fail on what is new or grows faster

Exit status: 0 fine, 1 the gate failed, 2 bad usage or unreadable input.")]
struct Check {
    /// Recordings (*.ltrace), or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// Kinds of findings that fail (several: leak,growing)
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum, default_value = "leak")]
    fail_on: Vec<FailOn>,
    /// Accept what grows by no more than this per step; 4096, 64KiB, 1.5MiB
    #[arg(long, value_name = "N", value_parser = gate::bytes)]
    max_bytes_per_step: Option<f64>,
    /// Fail too if a run cannot be judged: too few steps, events lost
    #[arg(long)]
    strict: bool,
    /// Accept the leaks in this file, as long as they do not grow faster
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the leaks there are to --baseline, and accept them
    #[arg(long, requires = "baseline")]
    write_baseline: bool,
    /// Leave out findings somebody lives with; the file is described under `report --help`
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// Print annotations for GitHub, so that a leak shows at its line in a pull request
    #[arg(long)]
    github: bool,
    /// Write SARIF 2.1.0 for code scanning
    #[arg(long, value_name = "OUT")]
    sarif: Option<PathBuf>,
    /// Colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Colour,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace diff before.ltrace after.ltrace
  leaktrace diff run.ltrace@10 run.ltrace@200
  leaktrace diff run.ltrace --step 10 --step 200

Exit status: 0 fine, 2 bad usage or unreadable input.")]
struct Diff {
    /// A recording, or FILE@STEP
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The one to compare it with
    #[arg(value_name = "B")]
    b: Option<PathBuf>,
    /// Compare these two steps of A, or the same step of both (given once)
    #[arg(long, value_name = "N")]
    step: Vec<u32>,
    /// How it is written
    #[arg(long, value_enum, default_value = "text")]
    format: PlainFormat,
    /// Every row, also what did not change
    #[arg(long)]
    all: bool,
    /// Colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Colour,
    /// Write there instead of the standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace top 4711
  leaktrace top leaktrace.*.ltrace
  leaktrace top --once 4711

Keys: q ends it, s sorts by growth or size, p holds it still. The program is not touched: only its recording is read.
Exit status: 0 fine, 2 bad usage or unreadable input.")]
struct Top {
    /// Recordings, folders of them, or pids
    #[arg(required = true, value_name = "FILE|PID")]
    what: Vec<PathBuf>,
    /// Print one frame as text and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    every: u32,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace doctor -- python train.py
  leaktrace doctor --out /scratch/runs/%p.ltrace -- ./train

The program itself is not run: only its interpreter, for a moment.
Exit status: 0 it would work, 1 it would not, 2 bad usage.")]
struct Doctor {
    /// Where the recording would go [default: leaktrace.%p.ltrace]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Colour,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace completions bash > ~/.local/share/bash-completion/completions/leaktrace
  leaktrace completions zsh > ~/.zfunc/_leaktrace
  leaktrace completions fish > ~/.config/fish/completions/leaktrace.fish")]
struct Completions {
    /// The shell
    shell: clap_complete::Shell,
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
    Html,
}

#[derive(Clone, Copy, ValueEnum)]
enum PlainFormat {
    Text,
    Json,
}

// No help of their own: it would make the help of the command twice as long.
#[derive(Clone, Copy, ValueEnum)]
enum By {
    Site,
    File,
    Function,
    Cohort,
}

/// What a gate fails on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Leak,
    Growing,
    PendingGc,
    Residue,
    Fragmentation,
    CarryOver,
    Periodic,
    Any,
}

impl FailOn {
    fn includes(self, kind: Kind) -> bool {
        match self {
            FailOn::Leak => kind == Kind::Leak,
            FailOn::Growing => kind == Kind::Growing,
            FailOn::PendingGc => kind == Kind::PendingGc,
            FailOn::Residue => kind == Kind::Residue,
            FailOn::Fragmentation => kind == Kind::Fragmentation,
            FailOn::CarryOver => kind == Kind::CarryOver,
            FailOn::Periodic => kind == Kind::Periodic,
            FailOn::Any => true,
        }
    }
}

/// What went wrong, in one line.
struct Failure(String);

/// The program.
pub fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run::run(arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Check(arguments) => check::check(&arguments),
        Command::Export(arguments) => export::export(arguments),
        Command::Diff(arguments) => diff::diff(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Completions(Completions { shell }) => manual::completions(shell),
        Command::Man => manual::page(),
        Command::Alive(arguments) => alive::alive(&arguments),
    };
    done.unwrap_or_else(|Failure(line)| {
        eprintln!("leaktrace: {line}");
        ExitCode::from(BAD_INPUT)
    })
}
