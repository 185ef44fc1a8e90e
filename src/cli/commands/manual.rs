//! `leaktrace completions` and `leaktrace man`: made from the argument parser and the texts of `leaktrace
//! help`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::help::TOPICS;
use super::{Arguments, Failure, output};

pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "leaktrace", &mut text);
    output::write(None, &[], &text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn man() -> Result<ExitCode, Failure> {
    output::write(None, &[], &page().map_err(|e| Failure(format!("the manual page: {e}")))?)?;
    Ok(ExitCode::SUCCESS)
}

/// Renders one page: the program, each command, each topic of the reference.
fn page() -> std::io::Result<Vec<u8>> {
    let mut command = Arguments::command();
    command.build();
    let mut text = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        let man = Man::new(sub.clone());
        text.extend(format!(".SH LEAKTRACE {}\n", sub.get_name().to_uppercase()).bytes());
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        man.render_extra_section(&mut text)?;
    }
    for topic in TOPICS {
        let mut section = Roff::new();
        section.control("SH", [topic.title().to_uppercase().as_str()]);
        // The lines are broken by hand, and tables are aligned.
        section.control("nf", []).text([roman(topic.body().trim_end())]).control("fi", []);
        section.to_writer(&mut text)?;
    }
    Ok(text)
}
