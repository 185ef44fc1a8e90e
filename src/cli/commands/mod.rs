//! The program's commands, and the parser of their arguments. A command turns its arguments into calls of the
//! other modules, and errors into lines; it knows no format.

mod attach;
mod check;
mod diff;
mod doctor;
mod export;
mod gate;
mod help;
mod input;
mod jupyter;
mod live_set;
mod locate;
mod manual;
mod output;
mod proc;
mod report;
mod run;
mod settings;
mod similar;
mod simulate;
mod supervise;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use leaktrace_core::ledger;
use leaktrace_core::ledger::verdict::Kind;
use output::Color;

/// The exit status of a gate that failed.
const GATE: u8 = 1;
/// The exit status of wrong usage, and of input that cannot be read.
const BAD_INPUT: u8 = 2;

#[derive(Parser)]
#[command(name = "leaktrace", version, about, max_term_width = 100, subcommand_required = true)]
#[command(disable_help_subcommand = true, after_help = help::topics())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program and record its GPU memory
    Run(Run),
    /// Record a program that runs already
    Attach(attach::Attach),
    /// End what attach began; the program goes on
    Detach(attach::Detach),
    /// Report live GPU memory and leaks
    Report(Report),
    /// Fail if there is a leak: the gate for CI
    Check(Check),
    /// Compare two runs, or two steps of one
    Diff(Diff),
    /// Convert recordings to a format of another tool
    Export(export::Arguments),
    /// Live view of running programs
    Top(Top),
    /// Check whether a program can be traced here, without running it
    Doctor(Doctor),
    /// Add a kernel to Jupyter whose notebooks are recorded
    Jupyter(jupyter::Arguments),
    /// Print completions for a shell
    Completions(Completions),
    /// Print the manual page
    Man,
    /// Print a topic of the reference, or the help of a command
    Help(Help),
    /// Run a program that ends with its parent, for `run`
    #[command(hide = true)]
    Supervised(supervise::Arguments),
    /// Print what is alive by the step that allocated it, for programs
    #[command(hide = true)]
    LiveSet(LiveSet),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace run -- python train.py --epochs 1
  leaktrace run --out 'runs/%r.ltrace' -- torchrun --nproc-per-node 8 train.py
  leaktrace run --fail-on leak -- pytest tests/test_training.py
  leaktrace run --fail-on leak --baseline leaks.json --github -- python train.py
  git bisect run leaktrace run --fail-on leak --bisect -- python train.py

Exit status: the program's own; with --fail-on, 1 if it was 0 and a finding fails or nothing could be judged.")]
struct Run {
    /// Write the recording to PATH [default: leaktrace.%p.ltrace]; %p pid, %e program, %h host, %r rank
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// End steps by: auto, optimizer, loop, backward, range:NAME, api, every:SECONDS
    #[arg(long, value_name = "SOURCE", value_parser = settings::step)]
    step: Option<String>,
    /// Fail afterwards if a recorded process has a finding of this kind (several: leak,growing)
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    fail_on: Vec<FailOn>,
    /// Accept growth of up to N bytes per step (with --fail-on); 4096, 64KiB, 1.5MiB
    #[arg(long, value_name = "N", requires = "fail_on", value_parser = gate::bytes)]
    max_bytes_per_step: Option<f64>,
    /// Ignore known findings listed in FILE (with --fail-on); see `leaktrace help ci`
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    suppressions: Option<PathBuf>,
    /// Accept the leaks in FILE unless they grow faster (with --fail-on); `check --write-baseline` writes it
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    baseline: Option<PathBuf>,
    /// Print annotations for GitHub on the standard error (with --fail-on)
    #[arg(long, requires = "fail_on")]
    github: bool,
    /// Write SARIF 2.1.0 for code scanning (with --fail-on)
    #[arg(long, value_name = "OUT", requires = "fail_on")]
    sarif: Option<PathBuf>,
    /// Write paths relative to DIR, as annotations need them (with --fail-on) [default: the repository's root]
    #[arg(long, value_name = "DIR", requires = "fail_on")]
    source_root: Option<PathBuf>,
    /// Pass also where a run cannot be judged: too few steps, an early end, events lost (with --fail-on)
    #[arg(long, requires = "fail_on")]
    allow_unjudged: bool,
    /// For git bisect: end with 125 (skip) where the program fails or cannot be judged (with --fail-on)
    #[arg(long, requires = "fail_on")]
    bisect: bool,
    /// Run on a simulated GPU with memory of SIZE [default: SIMGPU_MEM, or 80G]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    simulate: Option<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace report leaktrace.4711.ltrace
  leaktrace report leaktrace.4711.ltrace --at peak
  leaktrace report leaktrace.4711.ltrace --since 100 --by function
  leaktrace report runs/                     one report over all ranks
  leaktrace report leaktrace.4711.ltrace --format json -o report.json

See leaktrace help report, leaktrace help ci (suppressions), leaktrace help formats.
Exit status: 0 success, 2 wrong usage or unreadable input.")]
struct Report {
    /// Recordings (*.ltrace), or folders of them; several of one run make one report [default: the newest run here]
    #[arg(value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// Write in this format [default: what OUT ends in, or text]; html: one page that opens from the disk, with timeline, flame graph and segments
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// List what was live at this moment: peak, oom (the last failed allocation), step:N (the same as --step N)
    #[arg(long, value_name = "MOMENT", conflicts_with_all = ["step", "since"])]
    at: Option<report::At>,
    /// Judge the run up to the end of step N, and list what was live then
    #[arg(long, value_name = "N")]
    step: Option<u32>,
    /// List what was allocated after step N ended and is still live
    #[arg(long, value_name = "N")]
    since: Option<u32>,
    /// Sum up live memory by this; site: the call stack, cohort: the step that allocated it
    #[arg(long, value_enum, default_value = "site")]
    by: By,
    /// Show every row, line and frame, not only the first ones
    #[arg(long)]
    all: bool,
    /// Ignore known findings listed in FILE [env: LEAKTRACE_SUPPRESSIONS]
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// Show every frame of each stack, also those of the interpreter and the dispatcher
    #[arg(long)]
    all_frames: bool,
    /// End steps by another source that was recorded: optimizer, loop, loop:DEPTH, backward, range, api, time
    #[arg(long, value_name = "SOURCE")]
    steps_by: Option<ledger::BoundarySource>,
    /// Use colors; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
    /// Write to OUT instead of the standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

impl Report {
    /// The report of a recording, as it is without any option.
    fn of(file: PathBuf) -> Report {
        Report {
            files: vec![file],
            format: None,
            at: None,
            step: None,
            since: None,
            by: By::Site,
            all: false,
            suppressions: None,
            all_frames: false,
            steps_by: None,
            color: Color::Auto,
            output: None,
        }
    }
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace check runs/
  leaktrace check leaktrace.*.ltrace --max-bytes-per-step 4KiB --github
  leaktrace check runs/ --sarif leaktrace.sarif
  leaktrace check runs/ --baseline leaks.json --write-baseline  accept them
  leaktrace check runs/ --baseline leaks.json    fail on what is new

See leaktrace help ci.
Exit status: 0 success, 1 a finding fails or a run could not be judged, 2 wrong usage or unreadable input.")]
struct Check {
    /// Recordings (*.ltrace), or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// Fail on findings of this kind (several: leak,growing)
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum, default_value = "leak")]
    fail_on: Vec<FailOn>,
    /// Accept growth of up to N bytes per step; 4096, 64KiB, 1.5MiB
    #[arg(long, value_name = "N", value_parser = gate::bytes)]
    max_bytes_per_step: Option<f64>,
    /// Pass also where a run cannot be judged: too few steps, an early end, events lost
    #[arg(long)]
    allow_unjudged: bool,
    /// Write paths relative to DIR, as annotations need them [default: the root of the repository here]
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,
    /// Accept the leaks in FILE unless they grow faster
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the leaks that are found to the baseline, and accept them
    #[arg(long, requires = "baseline")]
    write_baseline: bool,
    /// Ignore known findings listed in FILE; see `leaktrace help ci`
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// Print annotations for GitHub, so that a leak shows at its line in a pull request
    #[arg(long)]
    github: bool,
    /// Write SARIF 2.1.0 for code scanning
    #[arg(long, value_name = "OUT")]
    sarif: Option<PathBuf>,
    /// Use colors; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace diff before.ltrace after.ltrace
  leaktrace diff run.ltrace@10 run.ltrace@200
  leaktrace diff run.ltrace --step 10 --step 200

Exit status: 0 success, 2 wrong usage or unreadable input.")]
struct Diff {
    /// A recording, or FILE@STEP
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The recording to compare it with
    #[arg(value_name = "B")]
    b: Option<PathBuf>,
    /// Compare these two steps of A, or, given once, this step of both
    #[arg(long, value_name = "N")]
    step: Vec<u32>,
    /// Write in this format
    #[arg(long, value_enum, default_value = "text")]
    format: PlainFormat,
    /// Show every row, also what did not change
    #[arg(long)]
    all: bool,
    /// Use colors; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
    /// Write to OUT instead of the standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace top 4711
  leaktrace top leaktrace.*.ltrace
  leaktrace top --once 4711

Keys: q quits, s sorts by growth or size, p pauses. Only the recordings are read; the programs are not stopped.
Exit status: 0 success, 2 wrong usage or unreadable input.")]
struct Top {
    /// Recordings, folders of them, or pids
    #[arg(required = true, value_name = "FILE|PID")]
    what: Vec<PathBuf>,
    /// Print one frame as text and exit
    #[arg(long)]
    once: bool,
    /// Refresh interval in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    every: u32,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace doctor -- python train.py
  leaktrace doctor --out /scratch/runs/%p.ltrace -- ./train

The program itself is not run, only its interpreter for a moment.
Exit status: 0 the program can be traced, 1 it cannot, 2 wrong usage.")]
struct Doctor {
    /// Check that a recording can be written to PATH [default: leaktrace.%p.ltrace]
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Use colors; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  source <(leaktrace completions bash)                  in ~/.bashrc
  leaktrace completions zsh > ~/.zfunc/_leaktrace
  leaktrace completions fish > ~/.config/fish/completions/leaktrace.fish")]
struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace help                 commands and topics
  leaktrace help environment     a topic
  leaktrace help run             a command")]
struct Help {
    /// A topic or a command; without one, all of them are listed
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
}

#[derive(clap::Args)]
struct LiveSet {
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

// The values have no help: it would make the help of the command twice as long.
#[derive(Clone, Copy, ValueEnum)]
enum By {
    Site,
    File,
    Function,
    Cohort,
}

/// A kind of finding that fails a gate.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Leak,
    Growing,
    PendingGc,
    Residue,
    LastLoop,
    AfterLast,
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
            FailOn::LastLoop => kind == Kind::LastLoop,
            FailOn::AfterLast => kind == Kind::AfterLast,
            FailOn::Fragmentation => kind == Kind::Fragmentation,
            FailOn::CarryOver => kind == Kind::CarryOver,
            FailOn::Periodic => kind == Kind::Periodic,
            FailOn::Any => true,
        }
    }
}

/// What went wrong, in a line, or in one line for each file.
struct Failure(String);

impl Failure {
    /// Joins the failures of several files; none is a success.
    fn all(failures: Vec<Failure>) -> Result<(), Failure> {
        match failures.is_empty() {
            true => Ok(()),
            false => Err(Failure(failures.into_iter().map(|f| f.0).collect::<Vec<_>>().join("\n"))),
        }
    }
}

/// Says what is wrong with the arguments; a program in the place of a command is to be run, most likely.
fn refuse(wrong: &clap::Error) -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.display().to_string()).collect();
    if wrong.kind() == clap::error::ErrorKind::InvalidSubcommand
        && let Some(program) = words.first()
        && (program.ends_with(".py") || doctor::resolve(program.as_ref()).is_some())
    {
        let whole = words.join(" ");
        output::complain(&format!(
            "'{program}' is not a command; to record a program: leaktrace run {whole}"
        ));
        return ExitCode::from(BAD_INPUT);
    }
    wrong.exit()
}

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(wrong) => return refuse(&wrong),
    };
    let done = match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Attach(arguments) => attach::attach(&arguments),
        Command::Detach(arguments) => attach::detach(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Check(arguments) => check::check(&arguments),
        Command::Export(arguments) => export::export(arguments),
        Command::Diff(arguments) => diff::diff(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Jupyter(arguments) => jupyter::jupyter(&arguments),
        Command::Completions(Completions { shell }) => manual::completions(shell),
        Command::Man => manual::man(),
        Command::Help(arguments) => help::help(&arguments),
        Command::Supervised(arguments) => supervise::supervised(&arguments),
        Command::LiveSet(arguments) => live_set::live_set(&arguments),
    };
    done.unwrap_or_else(|Failure(lines)| {
        lines.lines().for_each(output::complain);
        ExitCode::from(BAD_INPUT)
    })
}
