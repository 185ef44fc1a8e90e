//! Writes a stub library as C and a version script, and has the C compiler link it.

use crate::outputs::{self, Value};
use crate::wheels::Library;
use crate::{Result, bodies, vendor};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// A compiler run and the library it makes.
pub struct Job {
    pub soname: String,
    pub command: Vec<String>,
}

pub fn job(soname: &str, wanted: &Library, out: &Path, work: &Path) -> Result<Job> {
    let body = vendor::body(soname);
    let mut nodes = Nodes::default();
    let mut code = format!("#define SIMGPU_MAJOR {}\n{}\n{body}\n", vendor::major(soname), bodies::PRELUDE);
    // What the bodies define beyond the imports is exported under the library's usual node.
    let usual = wanted.values().flatten().next().cloned();
    let defined: Vec<&str> = bodies::defined(body).collect();
    for name in &defined {
        nodes.add(name, wanted.get(*name).cloned().unwrap_or(usual.clone()));
    }
    for (name, node) in wanted {
        if !defined.contains(&name.as_str()) {
            stub(&mut code, name);
            nodes.add(name, node.clone());
        }
    }
    let source = write(work, soname, "c", &code)?;
    let script = write(work, soname, "map", &nodes.script())?;
    let inputs = vec![source, "-ldl".into()];
    Ok(Job { soname: soname.into(), command: command(soname, &script, inputs, out) })
}

/// The library that has programs find device files.
pub fn device_files(out: &Path, work: &Path) -> Result<Job> {
    let source = write(work, bodies::DEVICE_FILES.0, "c", bodies::DEVICE_FILES.1)?;
    let mut exports = Nodes::default();
    ["stat", "stat64", "__xstat", "__xstat64"].iter().for_each(|name| exports.add(name, None));
    let script = write(work, bodies::DEVICE_FILES.0, "map", &exports.script())?;
    let inputs = vec![source, "-ldl".into()];
    Ok(Job {
        soname: bodies::DEVICE_FILES.0.into(),
        command: command(bodies::DEVICE_FILES.0, &script, inputs, out),
    })
}

/// `cc` for a library of this SONAME. Inner calls stay inside, as in the vendor's libraries.
pub fn command(soname: &str, script: &str, inputs: Vec<String>, out: &Path) -> Vec<String> {
    let mut command: Vec<String> =
        ["cc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-w", "-Wl,-Bsymbolic"].map(String::from).into();
    command.push(format!("-Wl,-soname,{soname}"));
    command.push(format!("-Wl,--version-script,{script}"));
    command.extend(["-o".into(), out.join(soname).display().to_string()]);
    command.extend(inputs);
    command
}

pub fn write(work: &Path, soname: &str, kind: &str, text: &str) -> Result<String> {
    let path = work.join(format!("{soname}.{kind}"));
    std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(path.display().to_string())
}

/// A function that initialises what its caller reads back, and succeeds.
fn stub(code: &mut String, name: &str) {
    let outputs = outputs::of(name);
    let count = outputs.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
    let parameters: Vec<String> = (0..count).map(|index| format!("word a{index}")).collect();
    let parameters = if count == 0 { "void".into() } else { parameters.join(", ") };
    let _ = write!(code, "word {name}({parameters}) {{ ");
    for (index, value) in outputs {
        let _ = match value {
            Value::Handle => write!(code, "OUT_HANDLE(a{index}); "),
            Value::Int(number) => write!(code, "OUT_INT(a{index}, {number}); "),
            Value::Size(bytes) => write!(code, "OUT_SIZE(a{index}, {bytes}); "),
            Value::Zero(bytes) => write!(code, "OUT_ZERO(a{index}, {bytes}); "),
            Value::Text => write!(code, "OUT_TEXT(a{index}); "),
            Value::Version => {
                write!(code, "OUT_INT(a{index}, a0 == 0 ? SIMGPU_MAJOR : a0 == 1 ? MINOR : 0); ")
            }
        };
    }
    let answer = if outputs::returns_text(name) { "(word)\"simulated\"" } else { "0" };
    let _ = writeln!(code, "return {answer}; }}");
}

/// Exported names by version node.
#[derive(Default)]
pub struct Nodes(BTreeMap<Option<String>, Vec<String>>);

impl Nodes {
    pub fn add(&mut self, name: &str, node: Option<String>) {
        self.0.entry(node).or_default().push(name.into());
    }

    /// A script with named nodes cannot have a nameless one beside them: unversioned names join the first.
    pub fn script(&self) -> String {
        let mut nodes = self.0.clone();
        if nodes.len() > 1
            && let Some(plain) = nodes.remove(&None)
            && let Some(mut first) = nodes.first_entry()
        {
            first.get_mut().extend(plain);
        }
        if nodes.is_empty() {
            return "{ local: *; };\n".into();
        }
        let mut text = String::new();
        for (at, (node, names)) in nodes.iter().enumerate() {
            let local = if at == 0 { " local: *;" } else { "" };
            let _ = writeln!(
                text,
                "{} {{ global: {};{local} }};",
                node.as_deref().unwrap_or_default(),
                names.join("; ")
            );
        }
        text
    }
}

/// Runs the compilers, as many at once as there are processors.
pub fn run_all(jobs: &[Job]) -> Result<()> {
    let left = Mutex::new(jobs.iter());
    let failed = Mutex::new(None);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = left.lock().ok().and_then(|mut left| left.next()) {
                    if let (Err(message), Ok(mut failed)) = (run(job), failed.lock()) {
                        failed.get_or_insert(message);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        Ok(Some(message)) => Err(message),
        _ => Ok(()),
    }
}

fn run(job: &Job) -> Result<()> {
    let output = Command::new(&job.command[0])
        .args(&job.command[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run {}: {e}", job.command[0]))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("error") || line.contains("undefined"));
    Err(format!("cannot build {}: {}", job.soname, line.or(said.lines().next()).unwrap_or("cc failed")))
}
