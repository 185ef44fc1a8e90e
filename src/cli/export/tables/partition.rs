//! The folder of a recording's tables: `run=NAME/rank=N`. Recordings of one export that the same command
//! began at about the same time, each as another rank, are one run. Pure.

use std::collections::HashSet;
use std::path::PathBuf;

use super::Input;

/// Ranks of one run begin within this time.
const TOGETHER_NS: u64 = 600_000_000_000;

/// The folder of one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub run: String,
    pub rank: String,
}

impl Partition {
    pub fn path(&self) -> PathBuf {
        [format!("run={}", plain(&self.run)), format!("rank={}", plain(&self.rank))].iter().collect()
    }
}

/// The facts that the folder of a recording depends on.
pub struct Head {
    program: String,
    command: String,
    rank: Option<String>,
    pid: u32,
    began_ns: u64,
}

impl Head {
    pub fn of(input: &Input) -> Head {
        let meta = |key| input.meta(key).unwrap_or_default();
        Head {
            program: input.program(),
            command: format!("{}\0{}", meta("cwd"), meta("argv")),
            rank: input.meta("rank").map(str::to_owned),
            pid: input.pid(),
            began_ns: input.recording.began_ns,
        }
    }
}

struct Run {
    name: String,
    command: String,
    began_ns: u64,
    ranks: HashSet<String>,
}

/// Returns a folder for each recording, no two the same. `run`: the name of the run that all of them belong
/// to.
pub fn partitions(heads: &[Head], run: Option<&str>) -> Vec<Partition> {
    let mut order: Vec<usize> = (0..heads.len()).collect();
    order.sort_by_key(|&i| heads[i].began_ns);
    let mut runs: Vec<Run> = Vec::new();
    let mut partitions: Vec<Option<Partition>> = vec![None; heads.len()];
    for i in order {
        let head = &heads[i];
        let rank = head.rank.clone().unwrap_or_else(|| "0".to_owned());
        let same = |r: &&mut Run| {
            let together = r.command == head.command && head.began_ns - r.began_ns <= TOGETHER_NS;
            (run.is_some() || (together && head.rank.is_some())) && !r.ranks.contains(&rank)
        };
        let known = runs.iter_mut().rev().find(same);
        let of = match known {
            Some(run) => run,
            None => {
                let began = utc(head.began_ns / 1_000_000_000);
                let mut name = run.map_or_else(|| format!("{}-{began}", head.program), str::to_owned);
                if runs.iter().any(|r| r.name == name) {
                    name = format!("{name}-{}", head.pid);
                }
                let (command, ranks) = (head.command.clone(), HashSet::new());
                runs.push(Run { name, command, began_ns: head.began_ns, ranks });
                let Some(run) = runs.last_mut() else { continue };
                run
            }
        };
        of.ranks.insert(rank.clone());
        partitions[i] = Some(Partition { run: of.name.clone(), rank });
    }
    partitions.into_iter().flatten().collect()
}

/// Replaces what does not fit a path, or a value that readers would decode.
fn plain(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let text: String = text.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if text.trim_matches('.').is_empty() { format!("_{text}") } else { text }
}

/// Writes a time as `20260131T235959Z`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Returns the year, month and day of a day since 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counting years from March makes the leap day the last one of a year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(rank: Option<&str>, began_s: u64, pid: u32) -> Head {
        Head {
            program: "train.py".into(),
            command: "python train.py".into(),
            rank: rank.map(str::to_owned),
            pid,
            began_ns: began_s * 1_000_000_000,
        }
    }

    fn paths(heads: &[Head], run: Option<&str>) -> Vec<String> {
        partitions(heads, run).iter().map(|p| p.path().display().to_string()).collect()
    }

    #[test]
    fn dates() {
        let at = |seconds| utc(seconds);
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(1_798_761_600), "20270101T000000Z");
    }

    #[test]
    fn ranks_that_begin_together_are_one_run_and_no_two_share_a_folder() {
        let heads =
            [head(Some("1"), 3, 8), head(Some("0"), 0, 7), head(Some("0"), 5, 9), head(Some("1"), 9000, 4)];
        assert_eq!(
            paths(&heads, None),
            [
                "run=train.py-19700101T000000Z/rank=1",
                "run=train.py-19700101T000000Z/rank=0",
                "run=train.py-19700101T000005Z/rank=0",
                "run=train.py-19700101T023000Z/rank=1",
            ]
        );
        let alone = [head(None, 0, 7), head(None, 0, 8)];
        assert_eq!(
            paths(&alone, None),
            ["run=train.py-19700101T000000Z/rank=0", "run=train.py-19700101T000000Z-8/rank=0"]
        );
        assert_eq!(paths(&alone, Some("a/b")), ["run=a_b/rank=0", "run=a_b-8/rank=0"]);
        assert_eq!(paths(&heads[3..], Some("..")), ["run=_../rank=1"]);
    }
}
