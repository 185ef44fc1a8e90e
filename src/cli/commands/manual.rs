//! `leaktrace completions` and `leaktrace man`: from the argument parser itself.

use std::process::ExitCode;

use clap::CommandFactory;

use super::{Arguments, Failure, output};

pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "leaktrace", &mut text);
    output::write(None, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// One page: the program, then each command.
pub fn page() -> Result<ExitCode, Failure> {
    let failure = |e: std::io::Error| Failure(format!("standard output: {e}"));
    let mut command = Arguments::command();
    command.build();
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text).map_err(failure)?;
    for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
        let man = clap_mangen::Man::new(sub.clone());
        text.extend(format!(".SH LEAKTRACE {}\n", sub.get_name().to_uppercase()).bytes());
        man.render_synopsis_section(&mut text).map_err(failure)?;
        man.render_description_section(&mut text).map_err(failure)?;
        man.render_options_section(&mut text).map_err(failure)?;
        man.render_extra_section(&mut text).map_err(failure)?;
    }
    output::write(None, &text)?;
    Ok(ExitCode::SUCCESS)
}
