//! What hooks and contexts of autograd graphs keep, and cycles through them, which are C++ in part.

use crate::common::programs::torch;
use crate::common::report::{Report, call};

#[test]
fn hooks_that_keep_their_graph() {
    for (way, path) in [
        ("cycle", "default of argument `kept`"),
        ("module", "closure variable `self`.user_hooks[*].__self__.output"),
        ("store", "closure variable `kept`[*]"),
    ] {
        let cycle = "held by a reference cycle in C++, which garbage collection does not free: an autograd graph's hook \
                     that keeps the graph";
        let text = is_leak(way, &format!("{cycle} → {path}"));
        assert!(text.contains("let the hook keep the tensor's `.detach()`"), "{text}");
    }
}

#[test]
fn what_saved_tensors_were_packed_to() {
    let path = "packed() local `losses`[*].grad_fn → … → TanhBackward0, AddmmBackward0 → its hooks[0]";
    let text = is_leak("packed", path);
    assert!(text.contains("store `.detach()"), "{text}");
}

/// A collection frees those of the last layer only, since the graph behind it refers to the others.
#[test]
fn contexts_of_layers_behind_each_other() {
    let run =
        torch("holders/graph_hooks.py").arg("contexts").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&run.recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let seen = (&finding["kind"], &finding["bytes_per_step"], &finding["blocks_per_step"]);
    assert_eq!(seen, (&"pending-gc".into(), &65536.0.into(), &2.0.into()), "{finding:#}");
}

/// Runs a way of the program; returns the report, in which one leak is held so.
#[track_caller]
fn is_leak(way: &str, path: &str) -> String {
    let run = torch("holders/graph_hooks.py").arg(way).env("LEAKTRACE_QUIET", "1").traced().run().success();
    let recording = run.recording();
    let report = Report::of(&recording);
    let [finding] = report.findings() else { panic!("{way}: {:#?}", report.findings()) };
    let seen = (&finding["kind"], &finding["confidence"], &finding["holders"][0]["path"]);
    assert_eq!(seen, (&"leak".into(), &"confirmed".into(), &path.into()), "{way}: {finding:#}");
    String::from_utf8(call([recording.as_os_str()]).stdout).unwrap()
}
