//! The `leaktrace` program.

fn main() -> std::process::ExitCode {
    leaktrace_cli::main()
}
