//! `leaktrace jupyter`: a real kernel, recorded, with its magics, on the simulated GPU. Where the packages cannot be had, the
//! test says so.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::programs::{script, torch_python};
use crate::common::report::Report;
use crate::common::{Run, library, root};
use tempfile::TempDir;

/// Returns the folder of the packages; `None` where they cannot be downloaded.
fn packages() -> Option<String> {
    let made =
        Command::new(root().join("scripts/dev/notebook-env")).env_remove("LD_PRELOAD").output().unwrap();
    if !made.status.success() {
        println!("skipped: {}", String::from_utf8_lossy(&made.stderr).trim_end());
        return None;
    }
    Some(String::from_utf8_lossy(&made.stdout).trim_end().to_owned())
}

#[test]
fn a_notebook_is_recorded_and_asked() {
    let Some(packages) = packages() else { return };
    let prefix = TempDir::new().unwrap();
    let leaktrace = Path::new(env!("CARGO_BIN_EXE_leaktrace"));
    let path = format!("{packages}:{}", root().join("scripts/python").display());
    let install = Run::new(leaktrace).args(["jupyter", "install", "--python"]).arg(torch_python());
    let install = install.arg("--prefix").arg(prefix.path()).env("PYTHONPATH", &path);
    let told = install.env("LEAKTRACE_LIBRARY", library()).run().success().text();
    assert!(
        told.contains("\"Python 3 (leaktrace)\" is in ") && !told.contains("install the package"),
        "{told}"
    );

    let mut cells = vec![
        "import torch\nkept = []",
        "def make():\n    return torch.ones(1024, 256, device='cuda')",
        "%%leaktrace\nkept.append(make())",
        "%%leaktrace\nmake().sum()",
        "%%leaktrace\nlost = make()\ndel lost",
    ];
    cells.extend(["kept.append(make())"; 20]);
    cells.push("%leaktrace");
    let file = prefix.path().join("cells.json");
    fs::write(&file, serde_json::to_string(&cells).unwrap()).unwrap();
    let programs = std::env::join_paths(
        [leaktrace.parent().unwrap().to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let run = Run::new(torch_python()).simulated().arg(script("notebook.py")).arg("leaktrace").arg(&file);
    let run = run.env("PYTHONPATH", &path).env("JUPYTER_PATH", prefix.path().join("share/jupyter"));
    let run = run.env("IPYTHONDIR", prefix.path().join("ipython")).env("PATH", programs.unwrap());
    let ran = run.run().success();
    let outputs: Vec<String> = serde_json::from_slice(&ran.stdout).expect("what the cells wrote");
    let left = &outputs[2];
    assert!(
        left.contains("leaktrace: this cell left 1.0 MiB, 1,048,576 B (1 block) on the device"),
        "{left}"
    );
    assert!(
        left.contains("  Cell[2] line 2 make: 1.0 MiB") && left.contains("held by `__main__.kept[*]`"),
        "{left}"
    );
    // IPython keeps what the last line of a cell made.
    assert!(outputs[3].contains("512 B (1 block), held by `__main__._"), "{}", outputs[3]);
    assert!(outputs[4].contains("this cell left nothing on the device"), "{}", outputs[4]);
    let report = outputs.last().unwrap();
    assert!(report.starts_with("1 leak: 1.0 MiB per step at Cell[2] line 2 make"), "{report}");
    assert!(report.contains("held by `kept[*]` in __main__"), "{report}");
    let report = Report::of(&ran.recording());
    assert_eq!((report.source(), report.findings().len()), ("api", 1));
}
