//! Tables, asked by DuckDB.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::{consumed, leaking_line, list, number, run, text, trained};
use crate::common::Ran;
use crate::common::report::{Report, leaktrace};

/// Bytes by the line that allocates, as `retained` lists them; of the device's own memory.
fn by_line(report: &Report) -> BTreeMap<(String, u64), u64> {
    let mut sums = BTreeMap::new();
    for site in report.retained().iter().filter(|s| s["device"] == 0) {
        let place = &site["allocated_at"];
        let key = (text(&place["function"]).to_owned(), place["line"].as_u64().unwrap_or(0));
        *sums.entry(key).or_default() += number(&site["live_bytes"]);
    }
    sums
}

/// Tables in `fleet` under a folder.
#[track_caller]
fn tabled(folder: &Path, form: &str, name: &str, files: &[PathBuf]) {
    let out = folder.join("fleet");
    let done = run(files, &["--to", form, "--run", name, "-o", out.to_str().unwrap()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

pub fn asked(folder: &Path, sql: &str) -> Vec<Value> {
    let file = folder.join("query.sql");
    fs::write(&file, sql).unwrap();
    let answers: Value = serde_json::from_str(&consumed("ask_tables.py", &[&file], folder)).unwrap();
    list(&answers).to_vec()
}

#[track_caller]
fn tables_agree(form: &str) {
    let folder = TempDir::new().unwrap();
    let ran = trained("outputs", "40").run().success();
    let report = &Report::of(&ran.recording());
    tabled(folder.path(), form, "one", &[ran.recording()]);
    let at = |table: &str| format!("'fleet/run=one/rank=0/{table}.{form}'");
    let answers = asked(
        folder.path(),
        &format!(
            "SELECT function, line, sum(live_bytes) AS bytes FROM {} WHERE device = 0 AND live_blocks > 0 GROUP BY ALL;
             SELECT sum(c.live_bytes) AS bytes FROM {} c JOIN {} s USING (site) WHERE s.device = 0;
             SELECT step, live_bytes, reserved_bytes, at_s FROM {} WHERE device = 0 ORDER BY step;
             SELECT sum(CASE kind WHEN 'block_alloc' THEN bytes END) AS given, max(step) AS step, count(*) AS n,
                    bool_and(s.site IS NOT NULL) AS known
             FROM {} e LEFT JOIN (SELECT stack_id, min(site) AS site FROM {} GROUP BY 1) s USING (stack_id)
             WHERE kind = 'block_alloc';
             SELECT * FROM {};
             SELECT * FROM {} WHERE NOT non_leak",
            at("sites"), at("cohorts"), at("sites"),
            at("steps"), at("events"), at("sites"), at("recordings"), at("findings")
        ),
    );
    let lines: BTreeMap<(String, u64), u64> = list(&answers[0])
        .iter()
        .map(|r| {
            (
                (text(&r["function"]).to_owned(), r["line"].as_u64().unwrap_or(0)),
                r["bytes"].as_f64().unwrap() as u64,
            )
        })
        .collect();
    assert_eq!(lines, by_line(report), "sites");
    assert_eq!(answers[1][0]["bytes"].as_f64().unwrap() as u64, report.device(0, "live_bytes"), "cohorts");
    let series = list(&report.0["steps"]["series"]);
    assert_eq!(list(&answers[2]).len(), series.len());
    for (row, step) in list(&answers[2]).iter().zip(series) {
        assert_eq!((&row["step"], &row["at_s"]), (&step["step"], &step["at_s"]));
        for figure in ["live_bytes", "reserved_bytes"] {
            assert_eq!(row[figure], step["devices"][0][figure], "{figure} at {}", row["step"]);
        }
    }
    let events = &answers[3][0];
    assert!(events["known"] == true && number(&events["n"]) > 500, "{events}");
    let row = &answers[4][0];
    assert_eq!(
        (&row["end"], &row["steps"], &row["pid"]),
        (&"clean".into(), &40.into(), &report.0["program"]["pid"])
    );
    assert_eq!(number(&row["live_bytes"]), report.device(0, "live_bytes"));
    let findings = list(&answers[5]);
    assert_eq!(findings.len(), report.findings().len());
    for (row, finding) in findings.iter().zip(report.findings()) {
        let place = &finding["sites"][0]["allocated_at"];
        assert_eq!((&row["kind"], &row["explanation"]), (&finding["kind"], &finding["explanation"]));
        assert_eq!((&row["file"], &row["line"]), (&place["file"], &place["line"]));
    }
}

#[test]
fn tables_as_csv() {
    tables_agree("csv");
}

#[test]
fn tables_as_parquet() {
    tables_agree("parquet");
}

#[test]
fn a_fleet_is_judged_by_queries() {
    let folder = TempDir::new().unwrap();
    let ranks = ["0", "1"].map(|rank| trained("outputs", "40").env("RANK", rank).run().success());
    let fixed = trained("none", "40").run().success();
    tabled(folder.path(), "parquet", "train-1", &[fixed.recording()]);
    tabled(folder.path(), "parquet", "train-2", &ranks.each_ref().map(Ran::recording));
    let report = Report::of(&ranks[0].recording());
    let (finding, line) = (&report.findings()[0], leaking_line());
    let queries = leaktrace().args(["help", "fleet"]).output().unwrap().stdout;
    let answers = asked(folder.path(), &String::from_utf8(queries).unwrap());
    let [leak] = list(&answers[0]) else { panic!("one cause: {}", answers[0]) };
    let place = (&leak["run"], &leak["line"]);
    assert_eq!(place, (&"train-2".into(), &line.into()));
    assert_eq!((&leak["ranks"], &leak["of_ranks"]), (&2.into(), &2.into()));
    assert_eq!(leak["most_per_step"], finding["growth_bytes_per_step"]);
    let kept = list(&answers[1]);
    assert_eq!(kept.len(), 2, "{kept:?}");
    for row in kept {
        assert_eq!((&row["run"], &row["line"]), place);
        assert_eq!(row["bytes_per_step"], finding["bytes_per_step"]);
    }
    let [grown] = list(&answers[2]) else { panic!("one line: {}", answers[2]) };
    assert_eq!((&grown["run"], &grown["line"]), place);
    assert_eq!(grown["after"], 2.0 * 30.0 * 3072.0);
}
