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
    assert!(told.starts_with("1 leak in 4 ranks, on all of them"), "{told}");
    for words in [
        "4 ranks on 1 host; 40 steps each",
        "all 4 ranks, 1.0 KiB to 6.0 KiB per step, median 2.0 KiB, most on rank 3",
        // What one of them does beside it is said, though it lives and dies with the rest.
        " second on rank 3 only",
        // What is the same on all is one row, and how they differ is a line.
        "Ranks all 4 ranks: exit status 0 after 40 steps; live 40.0 KiB to 240.0 KiB",
        "live 40.0 KiB to 240.0 KiB, median 80.0 KiB, most on rank 3",
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
    assert!(told.starts_with("1 leak in 3 ranks, on rank 2 only"), "{told}");
    assert!(flat(&told).contains("rank 2 only, of 3 ranks"), "{told}");
}

#[test]
fn a_rank_that_ended_early_is_named() {
    let folder = TempDir::new().unwrap();
    for r in 0..3 {
        rank(&folder, r, 40, &[]);
    }
    rank(&folder, 3, 40, &["--kill", "17"]);
    let told = text(&run_leaktrace(folder.path(), &["report", "."]), 0);
    let answer = "No leak in 4 ranks; rank 3 ended first, at step 17: killed or crashed";
    assert!(told.starts_with(answer), "{told}");
    let flat = flat(&told);
    assert!(flat.contains("Ranks rank 3: killed or crashed after step 17 of 40; live "), "{told}");
    assert!(flat.contains("<- ended first ranks 0-2: exit status 0 after 40 steps;"), "{told}");
    let told = text(&run_leaktrace(folder.path(), &["check", "."]), 1);
    let reason = "not judged: rank 3 (./rank3.ltrace): killed or crashed after 17 steps, and others made 40";
    assert!(told.contains(reason), "{told}");
    text(&run_leaktrace(folder.path(), &["check", ".", "--allow-unjudged"]), 0);
    fs::remove_file(folder.path().join("rank3.ltrace")).unwrap();
    assert!(!text(&run_leaktrace(folder.path(), &["report", "."]), 0).contains("ended first"));
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
    // The rest is reported nevertheless.
    let told = text(&out, 2);
    assert!(told.contains("not read: torn.ltrace: ") && told.contains("1 recording"), "{told}");
    let out = run_leaktrace(folder.path(), &["report", "rank0.ltrace", "rank1.ltrace", "gone.ltrace"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("gone.ltrace: is not there"));
    assert!(text(&out, 2).contains("in 2 ranks"), "{out:?}");
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
    let expected: Vec<String> = (0..200).map(|i| format!("./rank{i}.ltrace")).collect();
    assert_eq!(files, expected, "rank 10 comes after rank 9");
    assert_eq!(
        (json["causes"].as_array().unwrap().len(), json["causes"][0]["members"].as_array().unwrap().len()),
        (1, 200)
    );
}

#[test]
fn runs_that_have_nothing_to_do_with_each_other_are_reported_apart() {
    let folder = TempDir::new().unwrap();
    for (name, run, bytes) in [("a", "1", "1024"), ("b", "2", "2048"), ("c", "2", "2048")] {
        let out = folder.path().join(format!("{name}.ltrace"));
        grows(40, &["--first", bytes]).env("LEAKTRACE_OUT", &out).env("LEAKTRACE_RUN", run).run();
    }
    let told = text(&run_leaktrace(folder.path(), &["report", "."]), 0);
    assert!(told.starts_with("3 recordings of 2 runs, the newest first"), "{told}");
    let (newest, oldest) = told.split_once("Run 2 of 2, begun 20").expect(&told);
    assert!(
        newest.contains("1 leak in 2 recordings, on all of them") && newest.contains("2.0 KiB (1 alloc"),
        "{told}"
    );
    assert!(oldest.contains("1 leak in 1 recording") && oldest.contains("1.0 KiB (1 alloc"), "{told}");
    let json = text(&run_leaktrace(folder.path(), &["report", ".", "--format", "json"]), 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schema"], json["runs"].as_array().unwrap().len()), (&"leaktrace.runs/1".into(), 2));
}

#[test]
fn the_page_of_a_folder_begins_with_all_ranks() {
    let folder = TempDir::new().unwrap();
    for r in 0..3 {
        let second = if r == 1 { "4096" } else { "0" };
        rank(&folder, r, 40, &["--first", "512", "--second", second]);
    }
    text(&run_leaktrace(folder.path(), &["report", ".", "-o", "page.html"]), 0);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    let data = page.split_once("id=\"overview-data\">").unwrap().1.split_once("</script>").unwrap().0;
    let runs: Value = serde_json::from_str(data).expect("is JSON");
    let run = &runs[0];
    let answer = run["answer"].as_str().unwrap();
    assert!(answer.starts_with("1 leak in 3 ranks, on all of them: 4.5 KiB per step at "), "{answer}");
    assert!(run["causes"][0]["on"].as_str().unwrap().contains("most on rank 1"), "{run:#}");
    assert_eq!((run["rows"].as_array().unwrap().len(), run["files"].as_array().unwrap().len()), (1, 3));
    // A thousand recordings of 1 MB are a page that can be sent around.
    let one = fs::read(folder.path().join("rank1.ltrace")).unwrap();
    for r in 3..1000 {
        fs::write(folder.path().join(format!("rank{r}.ltrace")), &one).unwrap();
    }
    text(&run_leaktrace(folder.path(), &["report", ".", "-o", "page.html"]), 0);
    let size = fs::metadata(folder.path().join("page.html")).unwrap().len();
    assert!(size < 5_000_000, "{size}");
}
