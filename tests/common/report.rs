//! Reports of the program under test, read as JSON.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::truth::Live;

/// Returns a command for the program under test.
pub fn leaktrace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leaktrace"));
    command.env_remove("LD_PRELOAD");
    command
}

/// Runs `leaktrace report ARGS…`.
pub fn call<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    leaktrace().arg("report").args(args).output().unwrap()
}

/// A report as JSON.
pub struct Report(pub Value);

impl Report {
    /// Reads the report of a whole recording.
    #[track_caller]
    pub fn of(recording: &Path) -> Report {
        Report::read(recording, None)
    }

    /// Reads the report of a recording up to the end of a step.
    #[track_caller]
    pub fn at(recording: &Path, step: u64) -> Report {
        Report::read(recording, Some(step))
    }

    #[track_caller]
    fn read(recording: &Path, step: Option<u64>) -> Report {
        let mut args = vec![recording.as_os_str().to_owned(), "--format".into(), "json".into()];
        if let Some(step) = step {
            args.extend(["--step".into(), step.to_string().into()]);
        }
        let out = call(&args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "leaktrace report {args:?}: {:?} {err}", out.status);
        let value: Value = serde_json::from_slice(&out.stdout).expect("the report is JSON");
        assert_eq!(value["schema"], "leaktrace.report/1");
        Report(value)
    }

    pub fn steps(&self) -> u64 {
        self.0["steps"]["count"].as_u64().expect("steps.count")
    }

    /// Returns the step source; it is empty if there were no steps.
    pub fn source(&self) -> &str {
        self.0["steps"]["source"].as_str().unwrap_or_default()
    }

    pub fn end(&self) -> &str {
        self.0["program"]["end"].as_str().expect("program.end")
    }

    /// Returns a figure of a device, 0 for a device that is not there.
    pub fn device(&self, index: u64, figure: &str) -> u64 {
        let devices = self.0["devices"].as_array().expect("devices");
        let Some(device) = devices.iter().find(|d| d["index"] == index) else { return 0 };
        device[figure].as_u64().unwrap_or_else(|| panic!("devices[].{figure}"))
    }

    /// Returns the driver's live bytes as the truth log counts them.
    pub fn driver_live(&self) -> Live {
        let devices = self.0["devices"].as_array().expect("devices").iter();
        let figure = |d: &Value, f: &str| d[f].as_u64().unwrap_or_else(|| panic!("devices[].{f}"));
        let mut live: Live =
            devices.map(|d| (figure(d, "index") as i64, figure(d, "driver_live_bytes"))).collect();
        // `host_bytes` is of the last boundary, as every figure that findings rest on; this one is of the
        // very end.
        let host = self.0.get("host_live_bytes").unwrap_or(&self.0["host_bytes"]);
        live.insert(-1, host.as_u64().expect("host_live_bytes"));
        live.retain(|_, bytes| *bytes > 0);
        live
    }

    pub fn retained(&self) -> &[Value] {
        self.0["retained"].as_array().expect("retained")
    }

    pub fn findings(&self) -> &[Value] {
        self.0["findings"].as_array().expect("findings")
    }

    pub fn coverage(&self, figure: &str) -> &Value {
        &self.0["coverage"][figure]
    }

    /// Fails the test if anything was lost or contradicts itself.
    #[track_caller]
    pub fn assert_whole(&self) {
        for figure in ["frees_without_allocation", "dropped_events", "allocations_without_free"] {
            assert_eq!(self.coverage(figure), 0, "coverage.{figure} in {:#}", self.0["coverage"]);
        }
        assert_eq!(self.coverage("gaps"), &Value::Array(Vec::new()));
        assert_ne!(
            self.coverage("ledger_matches_allocator"),
            &Value::Bool(false),
            "{:#}",
            self.0["warnings"]
        );
    }
}

/// Compares the report with the truth log at each `instant STEP LENGTH` line that the program printed, and at
/// the end.
#[track_caller]
pub fn agrees_at_instants(ran: &super::Ran, instants: usize) -> Report {
    let (truth, recording) = (ran.truth(), ran.recording());
    let mut met = 0;
    for line in ran.text().lines() {
        if let ["instant", step, length] = line.split(' ').collect::<Vec<_>>()[..] {
            let logged = truth.live_at(length.parse().unwrap());
            let at = Report::at(&recording, step.parse().unwrap());
            assert_eq!(at.driver_live(), logged, "at instant {step}");
            assert!(!logged.is_empty(), "nothing alive: nothing tested");
            met += 1;
        }
    }
    assert_eq!(met, instants);
    let report = Report::of(&recording);
    assert_eq!(report.driver_live(), truth.live(), "at the end");
    report.assert_whole();
    report
}

/// Returns the frames of one kind in a stack as (file, line, function), innermost first.
pub fn frames(stack: &Value, kind: &str) -> Vec<(String, u64, String)> {
    let frames = stack.as_array().expect("stack").iter().filter(|f| f["kind"] == kind);
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    frames.map(|f| (text(&f["file"]), f["line"].as_u64().unwrap_or(0), text(&f["function"]))).collect()
}
