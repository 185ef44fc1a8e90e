//! Links the simulated runtime under the SONAME of a version.

use crate::emit::{self, Job, Nodes};
use crate::wheels::Wanted;
use crate::{Result, bodies, vendor};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::Path;

/// cudaErrorNotSupported.
const NOT_SUPPORTED: i32 = 801;

/// The SONAMEs. That of CUDA 11 is made where a file needs it.
const OLD: &str = "libcudart.so.11.0";
const SONAMES: [&str; 2] = ["libcudart.so.12", "libcudart.so.13"];

pub fn jobs(archive: &Path, wanted: &Wanted, out: &Path, work: &Path) -> Result<Vec<Job>> {
    let old = wanted.contains_key(OLD).then_some(OLD);
    SONAMES.into_iter().chain(old).map(|soname| job(soname, archive, wanted, out, work)).collect()
}

fn job(soname: &str, archive: &Path, wanted: &Wanted, out: &Path, work: &Path) -> Result<Job> {
    let (soname, major) = (soname.to_string(), vendor::major(soname));
    let has = entry_points(archive)?;
    let mut nodes = Nodes::default();
    for name in &has {
        nodes.add(name, Some(soname.clone()));
    }
    // Tells the one source which runtime it is.
    let mut code = format!("{}\nconst int simgpu_cudart_major = {major};\n", bodies::PRELUDE);
    for name in wanted.get(&soname).into_iter().flat_map(|library| library.keys()) {
        if !has.contains(name) {
            let harmless = name.contains("Launch") || name.contains("Register");
            let answer = if harmless { 0 } else { NOT_SUPPORTED };
            code.push_str(&format!("word {name}(void) {{ return {answer}; }}\n"));
            nodes.add(name, Some(soname.clone()));
        }
    }
    let names: Vec<&str> = has.iter().map(String::as_str).collect();
    let inputs = vec![
        emit::write(work, &soname, "c", &code)?,
        // Without a reference the linker would take nothing out of the archive.
        emit::write(work, &soname, "ld", &format!("EXTERN({})\n", names.join(" ")))?,
        archive.display().to_string(),
        "-Wl,--gc-sections".into(),
        "-lpthread".into(),
        "-ldl".into(),
        "-lm".into(),
    ];
    let script = emit::write(work, &soname, "map", &nodes.script())?;
    Ok(Job { command: emit::command(&soname, &script, inputs, out), soname })
}

/// Returns the runtime functions that an archive defines.
fn entry_points(archive: &Path) -> Result<BTreeSet<String>> {
    let bad = |e: object::Error| format!("cannot read {} as an archive: {e}", archive.display());
    let data = std::fs::read(archive).map_err(|e| format!("cannot open {}: {e}", archive.display()))?;
    let mut names = BTreeSet::new();
    for member in ArchiveFile::parse(&*data).map_err(bad)?.members() {
        let Ok(object) = object::File::parse(member.map_err(bad)?.data(&*data).map_err(bad)?) else {
            continue;
        };
        for symbol in object.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition()) {
            let name = symbol.name().map_err(bad)?;
            if name.starts_with("cuda") || name.starts_with("__cuda") {
                names.insert(name.to_string());
            }
        }
    }
    match names.is_empty() {
        true => Err(format!("{} has no runtime function", archive.display())),
        false => Ok(names),
    }
}
