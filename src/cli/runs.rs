//! Which recordings are of one run: the ranks of a job, or a program and its children. What was started at another time, or
//! is another program, is another run. Pure.

use std::cmp::Ordering;
use std::fmt::Write;

use leaktrace_core::report::{End, Program};

/// By this `leaktrace run` names what it starts, whatever programs that are.
const NAMED_BY_RUN: &str = "LEAKTRACE_RUN=";
/// Seconds by which a rank may begin later than the first of its job, if no launcher named the job.
const LATE_S: f64 = 60.0;

/// What tells a recording's run from others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// The run as somebody named it, and the program in it.
    run: String,
    program: String,
    rank: Option<String>,
    pid: u32,
    pub began_s: f64,
    pub ended_s: f64,
}

impl Identity {
    pub fn of(p: &Program) -> Identity {
        let run = p.run.clone().unwrap_or_default();
        let program = match run.starts_with(NAMED_BY_RUN) {
            true => String::new(),
            false => program(p),
        };
        let ended_s = if p.end == End::Running { f64::INFINITY } else { p.began_s + p.duration_s };
        Identity { run, program, rank: p.rank.clone(), pid: p.pid, began_s: p.began_s, ended_s }
    }

    /// Returns whether this one, which began later, may be of the run of that one.
    fn may_belong_to(&self, other: &Identity) -> bool {
        (&self.run, &self.program) == (&other.run, &other.program)
    }
}

/// Returns what identifies a program: with a rank its script, since its arguments may differ from rank to rank; else the
/// whole command.
fn program(p: &Program) -> String {
    let spawned = p.argv.iter().any(|a| a.contains("spawn_main("));
    if p.rank.is_none() && !spawned {
        return format!("{}\0{}", p.cwd, p.argv.join("\0"));
    }
    let script = p.argv.iter().find(|a| a.ends_with(".py")).or(p.argv.get(1));
    let script = script.map_or("", |s| s.split('(').next().unwrap_or(s));
    format!("{}\0{script}", p.exe)
}

/// Puts recordings into runs: indices, the newest run first, and in each the recordings in their order.
pub fn group(all: &[Identity]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| all[a].began_s.total_cmp(&all[b].began_s));
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for i in order {
        let one = &all[i];
        let fits = |run: &&mut Vec<usize>| {
            let Some(first) = run.first().map(|&f| &all[f]).filter(|first| one.may_belong_to(first)) else {
                return false;
            };
            if one.run.starts_with(NAMED_BY_RUN) {
                return true;
            }
            // The same rank again is another run, or the same recording under another name.
            let again = |m: &Identity| m.rank.is_some() && m.rank == one.rank;
            let copy = |m: &Identity| (m.pid, m.began_s) == (one.pid, one.began_s);
            let members = || run.iter().map(|&m| &all[m]);
            let named = !one.run.is_empty();
            let in_time = members().any(|m| copy(m) || one.began_s <= m.ended_s)
                || (one.rank.is_some() && (named || one.began_s <= first.began_s + LATE_S));
            in_time && members().all(|m| !again(m) || copy(m))
        };
        match runs.iter_mut().rev().find(fits) {
            Some(run) => run.push(i),
            None => runs.push(vec![i]),
        }
    }
    runs.iter_mut().for_each(|run| run.sort_unstable());
    runs.reverse();
    runs
}

/// Compares names as people count: `rank2` before `rank10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let digits = |s: &[u8]| s.iter().take_while(|c| c.is_ascii_digit()).count();
        let (n, m) = (digits(a), digits(b));
        if n > 0 && m > 0 {
            let number =
                |s: &[u8], n: usize| s[..n].iter().skip_while(|&&c| c == b'0').copied().collect::<Vec<u8>>();
            let (x, y) = (number(a, n), number(b, m));
            let order = x.len().cmp(&y.len()).then(x.cmp(&y)).then(n.cmp(&m));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[n..], &b[m..]);
            continue;
        }
        match (a.split_first(), b.split_first()) {
            (Some((x, rest_a)), Some((y, rest_b))) if x == y => (a, b) = (rest_a, rest_b),
            (x, y) => return x.map(|x| x.0).cmp(&y.map(|y| y.0)),
        }
    }
}

/// Names ranks: `0-3 and 7`. Several numbers in a row are a range.
pub fn rank_set(mut ranks: Vec<u64>) -> String {
    ranks.sort_unstable();
    ranks.dedup();
    let mut parts: Vec<String> = Vec::new();
    for run in ranks.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [first, .., last] if run.len() > 2 => parts.push(format!("{first}-{last}")),
            run => parts.extend(run.iter().map(u64::to_string)),
        }
    }
    let mut text = String::new();
    let last = parts.len().saturating_sub(1);
    for (i, part) in parts.iter().enumerate() {
        let before = if i == 0 {
            ""
        } else if i == last {
            " and "
        } else {
            ", "
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{before}{part}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(script: &str, rank: Option<u32>, pid: u32, began_s: f64, seconds: f64) -> Program {
        Program {
            argv: vec!["python".into(), script.into(), format!("--local-rank={}", rank.unwrap_or(0))],
            rank: rank.map(|r| r.to_string()),
            pid,
            began_s,
            duration_s: seconds,
            end: End::Clean,
            ..Program::default()
        }
    }

    fn runs(all: &[Program]) -> Vec<Vec<usize>> {
        group(&all.iter().map(Identity::of).collect::<Vec<_>>())
    }

    #[test]
    fn unrelated_runs_are_told_apart() {
        // Two jobs of two ranks, one after the other, and another program meanwhile.
        let all = [
            process("ddp.py", Some(0), 1, 1000.0, 60.0),
            process("ddp.py", Some(1), 2, 1003.0, 20.0),
            process("eval.py", None, 3, 1010.0, 5.0),
            process("ddp.py", Some(1), 4, 1100.0, 60.0),
            process("ddp.py", Some(0), 5, 1101.0, 60.0),
        ];
        assert_eq!(runs(&all), [vec![3, 4], vec![2], vec![0, 1]]);
        // The same program twice, without ranks: one after the other, or a child of the first.
        let mut all = [process("a.py", None, 1, 10.0, 5.0), process("a.py", None, 2, 16.0, 5.0)];
        assert_eq!(runs(&all), [vec![1], vec![0]]);
        all[1].began_s = 12.0;
        assert_eq!(runs(&all), [vec![0, 1]]);
    }

    #[test]
    fn who_starts_a_run_names_it() {
        let mut all = [process("a.py", None, 1, 10.0, 5.0), process("b.py", None, 2, 90.0, 5.0)];
        all.iter_mut().for_each(|p| p.run = Some("LEAKTRACE_RUN=7".into()));
        assert_eq!(runs(&all), [vec![0, 1]]);
        all[1].run = Some("LEAKTRACE_RUN=8".into());
        assert_eq!(runs(&all), [vec![1], vec![0]]);
    }

    #[test]
    fn numbers_in_names_are_numbers() {
        let mut names = ["rank10.ltrace", "rank2.ltrace", "rank1.ltrace", "rank.ltrace", "a2b10", "a2b9"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["a2b9", "a2b10", "rank.ltrace", "rank1.ltrace", "rank2.ltrace", "rank10.ltrace"]);
    }

    #[test]
    fn ranks_in_a_row_are_a_range() {
        assert_eq!(rank_set(vec![3, 1, 2, 0, 7]), "0-3 and 7");
        assert_eq!(rank_set(vec![0, 1]), "0 and 1");
        assert_eq!(rank_set(vec![5, 1, 3]), "1, 3 and 5");
        assert_eq!(rank_set((0..64).collect()), "0-63");
        assert_eq!(rank_set(vec![]), "");
    }
}
