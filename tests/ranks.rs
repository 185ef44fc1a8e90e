//! Many recordings, one report: the same cause is one finding, one rank's alone is marked, who ended early is named.

use std::fs;
use std::path::PathBuf;

use crate::common::grows::{flat, grows, run_leaktrace, text};
use serde_json::Value;
use tempfile::TempDir;

/// Runs a rank; its recording is left in the folder.
fn rank(folder: &TempDir, rank: u32, steps: u32, args: &[&str]) -> PathBuf {
    let out = folder.path().join(format!("rank{rank}.ltrace"));
    grows(steps, args).env("LEAKTRACE_OUT", &out).env("RANK", rank.to_string()).run();
    assert!(out.exists());
    out
}

#[test]
fn one_cause_of_all_ranks_is_one_finding() {
    let folder = TempDir::new().unwrap();
    for (r, bytes) in [(0, "1024"), (1, "1024"), (2, "2048")] {
        rank(&folder, r, 40, &["--first", bytes]);
    }
    rank(&folder, 3, 40, &["--first", "1024", "--second", "5120"]);
    let told = text(&run_leaktrace(folder.path(), &["report", "."]), 0);
    let flat = flat(&told);
    assert!(told.starts_with("1 leak found in 4 recordings, 1 in all of them"), "{told}");
    for words in [
        "4 processes on 1 host, 4 with a rank; 40 steps each",
        "on all 4 processes, 1.0 KiB to 6.0 KiB per step, 2.0 KiB in the middle, most on rank 3",
        // What one of them does beside it is said, though it lives and dies with the rest.
        " second on rank 3 alone",
    ] {
        assert!(flat.contains(words), "{words}\n{told}");
    }
    // Files that are named make the same report as their folder.
    let names = ["rank0.ltrace", "rank1.ltrace", "rank2.ltrace", "rank3.ltrace"];
    let mut args = vec!["report"];
    args.extend(names);
    let named = text(&run_leaktrace(folder.path(), &args), 0);
    assert_eq!(named.lines().next(), told.lines().next());
    let json: Value =
        serde_json::from_str(&text(&run_leaktrace(folder.path(), &["report", ".", "--format", "json"]), 0))
            .unwrap();
    assert_eq!(
        (&json["schema"], json["processes"].as_array().unwrap().len()),
        (&"leaktrace.ranks/1".into(), 4)
    );
    let all = json["causes"].as_array().unwrap().iter().find(|c| c["everywhere"] == true).unwrap();
    assert_eq!(all["spread"], serde_json::json!([1024.0, 2048.0, 6144.0]));
}

#[test]
fn a_cause_of_one_rank_alone_is_marked() {
    let folder = TempDir::new().unwrap();
    rank(&folder, 0, 40, &[]);
    rank(&folder, 1, 40, &[]);
    rank(&folder, 2, 40, &["--second", "512"]);
    let told = text(&run_leaktrace(folder.path(), &["report", "."]), 0);
    assert!(told.starts_with("1 leak found in 3 recordings, 1 in one alone"), "{told}");
    assert!(flat(&told).contains("on rank 2 alone of 3 processes"), "{told}");
}

#[test]
fn a_rank_that_ended_early_is_named() {
    let folder = TempDir::new().unwrap();
    for r in 0..3 {
        rank(&folder, r, 40, &[]);
    }
    rank(&folder, 3, 40, &["--kill", "17"]);
    let told = text(&run_leaktrace(folder.path(), &["report", "."]), 0);
    assert!(told.starts_with("No leak found in 4 recordings."), "{told}");
    assert!(flat(&told).contains("Ended early rank 3: killed or crashed after step 17 of 40"), "{told}");
    let strict = run_leaktrace(folder.path(), &["check", ".", "--strict"]);
    assert!(text(&strict, 1).contains("rank 3 ended early, after 17 steps"));
    fs::remove_file(folder.path().join("rank3.ltrace")).unwrap();
    assert!(!text(&run_leaktrace(folder.path(), &["report", "."]), 0).contains("Ended early"));
}

#[test]
fn what_cannot_be_read_in_a_folder_is_told_of() {
    let folder = TempDir::new().unwrap();
    for r in 0..2 {
        rank(&folder, r, 20, &[]);
    }
    fs::write(folder.path().join("torn.ltrace"), b"LTRACE").unwrap();
    let told = text(&run_leaktrace(folder.path(), &["report", "."]), 0);
    assert!(told.contains("not read: ./torn.ltrace: "), "{told}");
    // One that is named must be readable.
    let out = run_leaktrace(folder.path(), &["report", "rank0.ltrace", "torn.ltrace"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("torn.ltrace"));
    let empty = TempDir::new().unwrap();
    let out = run_leaktrace(empty.path(), &["report", "."]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("holds no recording (*.ltrace)"));
}

#[test]
fn many_recordings_in_their_order() {
    let folder = TempDir::new().unwrap();
    let one = rank(&folder, 0, 30, &["--first", "1024"]);
    let bytes = fs::read(&one).unwrap();
    for i in 1..200 {
        fs::write(folder.path().join(format!("rank{i}.ltrace")), &bytes).unwrap();
    }
    let json: Value =
        serde_json::from_str(&text(&run_leaktrace(folder.path(), &["report", ".", "--format", "json"]), 0))
            .unwrap();
    let files: Vec<&str> =
        json["processes"].as_array().unwrap().iter().map(|p| p["file"].as_str().unwrap()).collect();
    assert_eq!(files.len(), 200);
    assert!(files.is_sorted(), "in the order of their names");
    assert_eq!(
        (json["causes"].as_array().unwrap().len(), json["causes"][0]["members"].as_array().unwrap().len()),
        (1, 200)
    );
}
