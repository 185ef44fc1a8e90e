//! Python stacks against `traceback.extract_stack`, on every CPython of this machine, through a runtime that ctypes
//! loads RTLD_LOCAL and calls without the GIL.

mod common;

use std::collections::BTreeMap;

use common::Run;
use common::programs::{bare_cudart, pythons, script};
use common::report::{Report, frames};
use serde_json::Value;

/// Places from the innermost out, each with the names it may go by.
type Places = Vec<(String, u64, Vec<String>)>;

/// The stacks that Python told of: where, bytes, number.
fn expected(told: &Value) -> Vec<(Places, u64, u64)> {
    let mut sums: BTreeMap<Places, (u64, u64)> = BTreeMap::new();
    for (bytes, stack) in told.as_object().unwrap() {
        let places = stack.as_array().unwrap().iter().map(|frame| {
            let names = frame[2].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned());
            (frame[0].as_str().unwrap().to_owned(), frame[1].as_u64().unwrap(), names.collect())
        });
        let sum = sums.entry(places.collect()).or_default();
        *sum = (sum.0 + bytes.parse::<u64>().unwrap(), sum.1 + 1);
    }
    sums.into_iter().map(|(places, (bytes, blocks))| (places, bytes, blocks)).collect()
}

fn agree(places: &Places, frames: &[(String, u64, String)]) -> bool {
    places.len() == frames.len()
        && places
            .iter()
            .zip(frames)
            .all(|((file, line, names), f)| *file == f.0 && *line == f.1 && names.contains(&f.2))
}

#[test]
fn python_stacks_are_pythons_own() {
    let pythons = pythons();
    assert!(!pythons.is_empty(), "no CPython 3.8 to 3.13 on this machine");
    let mut wrong = Vec::new();
    for (version, python) in pythons {
        let ran = Run::new(&python).args([script("stacks.py"), bare_cudart()]).traced().run().success();
        let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let report = Report::of(&ran.recording());
        let mut retained: Vec<&Value> = report.retained().iter().collect();
        let expected = expected(&told);
        for (places, bytes, blocks) in &expected {
            let found = retained.iter().position(|r| {
                (&r["live_bytes"], &r["live_blocks"]) == (&Value::from(*bytes), &Value::from(*blocks))
            });
            match found {
                Some(at) => {
                    let got = frames(&retained.remove(at)["stack"], "python");
                    if !agree(places, &got) {
                        wrong.push(format!("{version}: {bytes} bytes: got {got:#?}, not {places:#?}"));
                    }
                }
                None => wrong.push(format!(
                    "{version}: nothing of {bytes} bytes in {blocks}, allocated at {places:?}"
                )),
            }
        }
        assert!(expected.len() > 35, "{version}: {} stacks", expected.len());
        if !retained.is_empty() {
            wrong.push(format!("{version}: nobody told of {retained:#?}"));
        }
        let said = report.0["program"]["python"].as_str().unwrap_or_default();
        assert!(said.contains(&format!("CPython {version}")), "program.python is {said:?} on {version}");
        println!("{version}: {} stacks", expected.len());
    }
    assert!(wrong.is_empty(), "{} differences; the first: {}", wrong.len(), wrong[0]);
}

#[test]
fn stacks_as_asked_for() {
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.13");
    for (setting, with_python, with_native) in [
        ("auto", true, false),
        ("python", true, false),
        ("mixed", true, true),
        ("native", false, true),
        ("off", false, false),
    ] {
        let code = "import ctypes, sys\nrt = ctypes.CDLL(sys.argv[1])\nrt.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4321)";
        let ran = Run::new(&python).args(["-c", code]).arg(bare_cudart()).traced();
        let ran = ran.env("LEAKTRACE_STACKS", setting).run().success();
        let report = Report::of(&ran.recording());
        assert_eq!(report.retained().len(), 1);
        let stack = &report.retained()[0]["stack"];
        assert_eq!(!frames(stack, "python").is_empty(), with_python, "{setting}: {stack:#}");
        assert_eq!(!frames(stack, "native").is_empty(), with_native, "{setting}: {stack:#}");
    }
}
