//! `leaktrace help`: the reference by topic. The same texts are sections of the manual page.

use std::process::ExitCode;

use clap::CommandFactory;

use super::{Arguments, Failure, Help, output};

/// A topic of the reference. Its text has a title in the first line, and mostly behind a colon what it tells of.
pub struct Topic {
    pub name: &'static str,
    text: &'static str,
}

macro_rules! topics {
    ($($name:literal)*; $more:ident) => {
        &[$(Topic { name: $name, text: include_str!(concat!("help/", $name, ".txt")) }),*, $more]
    };
}

pub const TOPICS: &[Topic] =
    topics!["report" "steps" "stacks" "formats" "environment" "files" "exit-status" "limits" "ci"; FLEET];

/// The queries, so that `leaktrace help fleet | duckdb` asks them.
const FLEET: Topic = Topic { name: "fleet", text: include_str!("../../../scripts/findings.sql") };

impl Topic {
    pub fn title(&self) -> &'static str {
        self.first_line().0
    }

    /// Returns the title, and what follows its colon.
    fn first_line(&self) -> (&'static str, Option<&'static str>) {
        let line = self.text.split_once('\n').map_or(self.text, |(line, _)| line);
        let line = line.strip_prefix("-- ").unwrap_or(line);
        line.split_once(": ").map_or((line, None), |(title, what)| (title, Some(what)))
    }

    pub fn body(&self) -> &'static str {
        self.text.split_once("\n\n").map_or("", |(_, body)| body)
    }
}

/// Lists the topics, for the program's own help.
pub fn topics() -> String {
    let mut text = "Topics (leaktrace help TOPIC):\n".to_owned();
    for topic in TOPICS {
        let (title, what) = topic.first_line();
        text.push_str(&format!("  {:<12} {}\n", topic.name, what.unwrap_or(title)));
    }
    text + "\nStart with:\n  leaktrace run -- python train.py\n  leaktrace report"
}

pub fn help(arguments: &Help) -> Result<ExitCode, Failure> {
    let mut command = Arguments::command();
    command.build();
    let text = match &arguments.topic {
        None => command.render_help().to_string(),
        Some(name) => match TOPICS.iter().find(|t| t.name == name) {
            Some(topic) => topic.text.to_owned(),
            None => match command.find_subcommand_mut(name) {
                Some(command) => command.render_help().to_string(),
                None => {
                    let names: Vec<&str> = TOPICS.iter().map(|t| t.name).collect();
                    let names = names.join(", ");
                    return Err(Failure(format!(
                        "'{name}' is neither a topic nor a command; topics: {names}"
                    )));
                }
            },
        },
    };
    output::write(None, &[], text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::TOPICS;

    #[test]
    fn topics_have_titles_and_fit_a_manual_page() {
        for topic in TOPICS {
            assert!(!topic.title().is_empty() && !topic.body().is_empty(), "{}", topic.name);
            // A page of 80 columns indents its sections by seven.
            let wide: Vec<&str> = topic.text.lines().filter(|l| l.chars().count() > 72).collect();
            assert!(wide.is_empty(), "{}: {wide:#?}", topic.name);
        }
    }
}
