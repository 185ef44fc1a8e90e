//! `leaktrace jupyter install`: adds a kernel to Jupyter whose notebooks are recorded. Writes one folder, and runs the
//! interpreter only to ask where that belongs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Subcommand;
use serde_json::json;

use super::locate::{self, library};
use super::{Failure, input, output};

/// The folder's name, which is the kernel's identifier.
const NAME: &str = "leaktrace";
/// Prints the interpreter's own prefix, Jupyter's folder of this user, and the folder of the module `leaktrace`.
const ASK: &str = "\
import importlib.util as u, os, sys
import ipykernel
print(sys.prefix)
try:
    from jupyter_core.paths import jupyter_data_dir
    print(jupyter_data_dir())
except ImportError:
    print(os.environ.get('JUPYTER_DATA_DIR') or os.path.expanduser('~/.local/share/jupyter'))
print(int(u.find_spec('leaktrace') is not None))
";

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace jupyter install                         for this user
  leaktrace jupyter install --sys-prefix --python .venv/bin/python

In a notebook: %leaktrace is the report of this kernel, %%leaktrace runs a cell
and says what it left behind. The recording lies beside the notebook. Cells are
the steps where nothing else ends any.
Exit status: 0 success, 2 wrong usage, or an interpreter without ipykernel.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the kernel "Python 3 (leaktrace)"
    Install {
        /// The interpreter of the kernel [default: python3, or that of python -m leaktrace]
        #[arg(long, value_name = "PYTHON")]
        python: Option<PathBuf>,
        /// Write it below DIR/share/jupyter
        #[arg(long, value_name = "DIR", conflicts_with = "sys_prefix")]
        prefix: Option<PathBuf>,
        /// Write it to the interpreter's own environment, not to the user's folder
        #[arg(long)]
        sys_prefix: bool,
    },
}

pub fn jupyter(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Task::Install { python, prefix, sys_prefix } = &arguments.command;
    let library = library()?;
    let named = python.clone().or_else(|| std::env::var_os("LEAKTRACE_PYTHON").map(PathBuf::from));
    let python = named.unwrap_or_else(|| "python3".into());
    let python = super::doctor::resolve(python.as_os_str())
        .ok_or_else(|| Failure(format!("{} is not found", python.display())))?;
    let asked =
        Command::new(&python).args(["-c", ASK]).stdin(Stdio::null()).env_remove("LD_PRELOAD").output();
    let asked = asked.map_err(|e| Failure(format!("cannot run {}: {e}", python.display())))?;
    let told = String::from_utf8_lossy(&asked.stdout).into_owned();
    let [own, user, has_module] = told.lines().collect::<Vec<_>>()[..] else {
        return Err(Failure(format!(
            "{} has no ipykernel: {} -m pip install ipykernel, or name another with --python",
            python.display(),
            python.display()
        )));
    };
    let share = match (prefix, sys_prefix) {
        (Some(prefix), _) => prefix.join("share/jupyter"),
        (None, true) => Path::new(own).join("share/jupyter"),
        (None, false) => PathBuf::from(user),
    };
    let folder = share.join("kernels").join(NAME);
    fs::create_dir_all(&folder).map_err(|e| input::failure(&folder, &e.to_string()))?;
    let mut argv = vec![python.display().to_string(), "-m".into(), "ipykernel_launcher".into()];
    if has_module == "1" {
        argv.push("--IPKernelApp.extra_extensions=leaktrace".into());
    }
    argv.extend(["-f".into(), "{connection_file}".into()]);
    let spec = json!({
        "argv": argv,
        "display_name": "Python 3 (leaktrace)",
        "language": "python",
        "metadata": {"debugger": false},
        "env": {
            "LD_PRELOAD": locate::preload(&library).to_string_lossy(),
            "LEAKTRACE_QUIET": "1",
        },
    });
    // Strings and a flag only: that cannot fail.
    let text = serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n";
    let file = folder.join("kernel.json");
    fs::write(&file, text).map_err(|e| input::failure(&file, &e.to_string()))?;
    let module = match has_module {
        "1" => "",
        _ => "; install the package leaktrace there for %leaktrace and names of cells",
    };
    let line = format!("the kernel \"Python 3 (leaktrace)\" is in {}{module}\n", folder.display());
    output::write(None, &[], line.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
