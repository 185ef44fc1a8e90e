//! Memory runs out: what was alive at that moment stays on record, and the program meets its error as ever.

use crate::common::programs::{line_of, torch};
use crate::common::report::{Report, call};
use crate::common::{Ran, Run};

fn out_of_memory(how: &str, traced: bool) -> Ran {
    let run = torch("memory_out.py").arg(how).env("SIMGPU_MEM", "512M").env("LEAKTRACE_QUIET", "1");
    Run::traced_if(run, traced).run()
}

#[test]
fn a_dump_ranks_what_was_alive() {
    let (plain, traced) = (out_of_memory("caught", false).success(), out_of_memory("caught", true).success());
    assert_eq!(traced.text(), plain.text());
    assert_eq!(traced.stderr, plain.stderr);
    let held: u64 = plain.text().split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();

    let recording = traced.recording();
    let report = Report::of(&recording);
    assert_eq!(report.0["out_of_memory_count"], 1);
    let moment = &report.0["out_of_memory"][0];
    assert_eq!(moment["requested_bytes"], 24 << 20);
    assert_eq!(moment["allocated_bytes"], held);
    let ranked = moment["retained"].as_array().unwrap();
    let figures = |f: &str| ranked.iter().map(|r| r[f].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(figures("live_bytes").iter().sum::<u64>(), held);
    assert!(figures("live_bytes").is_sorted_by(|a, b| a >= b));
    let hoard = line_of("memory_out.py", "kept.append");
    for place in [&moment["allocated_at"], &ranked[0]["allocated_at"]] {
        assert_eq!((&place["line"], &place["function"]), (&hoard.into(), &"hoard".into()), "{place}");
        assert!(place["file"].as_str().unwrap().ends_with("memory_out.py"));
    }
    assert_eq!(ranked[1]["allocated_at"]["line"], line_of("memory_out.py", "torch.empty(1000 + i"));
    assert_eq!(ranked[1]["live_blocks"], 10);

    // What was asked for did not fit into any hole, nor would it have into all of them.
    let figure = |f: &str| moment[f].as_u64().unwrap_or_else(|| panic!("{f} in {moment:#}"));
    assert!(figure("reserved_bytes") >= held && figure("carry_over_bytes") == 0, "{moment:#}");
    assert_eq!(figure("free_in_segments_bytes"), figure("reserved_bytes") - held);
    assert!(figure("largest_free_block_bytes") <= figure("free_in_segments_bytes"), "{moment:#}");
    // Asked for at once, before the program let go of it.
    assert_eq!(ranked[0]["holders"][0]["path"], "main() local `kept`[*]", "{:#}", ranked[0]);
    assert_eq!(ranked[0]["holders"][0]["bytes"], ranked[0]["live_bytes"]);
    assert_eq!(ranked[1]["holders"][0]["path"], "main() local `small`[*]", "{:#}", ranked[1]);

    let text =
        std::fs::read_to_string(recording.with_extension("oom.txt")).expect("a dump beside the recording");
    let place = format!("memory_out.py:{hoard}");
    assert!(text.contains(&place), "{text}");
    assert!(text.contains("`kept[*]` in main()"), "{text}");
    report.assert_whole();
}

/// Why an allocation failed is told by every format: who asked, what was free in which pieces, who held the rest.
#[test]
fn every_format_explains_it() {
    let ran = out_of_memory("fragmented", true).success();
    let recording = ran.recording();
    let moment = &Report::of(&recording).0["out_of_memory"][0];
    let explanation = moment["explanation"].as_str().unwrap_or_else(|| panic!("{moment:#}"));
    let free = ["was free, in blocks of at most", "each too small for this request (fragmentation)"];
    for words in ["asked for 200.0 MiB", free[0], free[1]] {
        assert!(explanation.contains(words), "{explanation}");
    }
    let holder = &moment["holders"][0];
    assert_eq!(holder["path"], "main() local `pieces`[*]", "{moment:#}");
    assert_eq!(holder["bytes"], moment["allocated_bytes"]);

    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let dump = std::fs::read_to_string(recording.with_extension("oom.txt")).unwrap();
    let terminal = String::from_utf8(call([&recording]).stdout).unwrap();
    for text in [&dump, &terminal] {
        for words in ["asked for 200.0 MiB", free[0], free[1], "held by `pieces[*]` in main()"] {
            assert!(flat(text).contains(words), "{words}\n{text}");
        }
    }
    let page = ran.folder().join("report.html");
    assert!(
        call([recording.as_os_str(), "--format".as_ref(), "html".as_ref(), "-o".as_ref(), page.as_os_str()])
            .status
            .success()
    );
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(explanation) && page.contains("o.explanation"), "the page has it and shows it");
}

#[test]
fn an_error_that_ends_the_program() {
    let (plain, traced) = (out_of_memory("uncaught", false), out_of_memory("uncaught", true));
    assert_eq!((traced.code(), traced.text()), (1, plain.text()));
    // Process numbers and addresses in PyTorch's message aside.
    let tail = |ran: &Ran| {
        ran.stderr.lines().filter(|l| l.starts_with("  File")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tail(&traced), tail(&plain), "{}", traced.stderr);
    assert!(traced.stderr.contains("OutOfMemoryError"));
    let recording = traced.recording();
    // It has the counters to compare with, and foretells nothing that has come about.
    let dump = std::fs::read_to_string(recording.with_extension("oom.txt")).unwrap();
    assert!(dump.contains("live bytes equal PyTorch's own counters"), "{dump}");
    assert!(!dump.contains("device full"), "{dump}");
    // Then it is the answer, and how the program ended is a fact.
    let text = String::from_utf8(call([&recording]).stdout).unwrap();
    assert!(text.starts_with("OUT OF MEMORY at step "), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("exit status 1 (uncaught OutOfMemoryError) after "), "{text}");
    assert!(text.contains("At the failure: "), "{text}");
}
