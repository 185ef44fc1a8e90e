//! Which frameworks are installed for an interpreter, and whether their blocks can be seen: what
//! `leaktrace_core::frameworks` says of each is looked up in its files. Knows no framework by name.

use std::fs;
use std::path::Path;

use object::{Object, ObjectSymbol};

use super::Check;
use leaktrace_core::frameworks::{ALL, ARENAS, Framework};

/// What the checks are called.
const LABEL: &str = "framework";

/// Returns the packages that the interpreter is asked about.
pub fn packages() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|f| f.package()).chain(ARENAS.iter().map(|arena| arena.package))
}

/// Checks what the interpreter says of the packages: lines of a name, a version and a folder.
pub fn checks(told: &str) -> Vec<(&'static str, Check)> {
    let packages: Vec<[&str; 3]> = told
        .lines()
        .filter_map(|line| {
            let mut parts = line.strip_prefix("package ")?.splitn(3, ' ');
            Some([parts.next()?, parts.next()?, parts.next()?])
        })
        .collect();
    let installed = |name: &str| packages.iter().find(|[package, ..]| *package == name);
    let mut checks: Vec<_> = ALL
        .iter()
        .filter_map(|f| {
            let [_, version, folder] = *installed(f.package())?;
            Some((LABEL, check(f, version, Path::new(folder))))
        })
        .collect();
    if checks.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|f| f.name).collect();
        checks.push((
            LABEL,
            Check::Warning(
                format!("none of {} is installed for this interpreter", names.join(", ")),
                "only memory allocated from the driver is seen, and steps from loops, LEAKTRACE_STEP or leaktrace_step".into(),
            ),
        ));
    }
    let arenas = ARENAS.iter().filter(|arena| installed(arena.package).is_some());
    checks.extend(arenas.map(|arena| {
        let seen =
            "what it takes from the driver is seen, by the lines that made it grow; what lies in it is not";
        (LABEL, Check::Good(format!("{}: {seen}", arena.name)))
    }));
    checks
}

/// Checks whether the blocks of an installed framework can be seen.
fn check(framework: &Framework, version: &str, folder: &Path) -> Check {
    let installation = &framework.installation;
    let name = match version {
        "-" => framework.name.to_owned(),
        version => format!("{} {version}", framework.name),
    };
    if let Some(build) =
        installation.unseen_builds.iter().find(|b| folder.join(b.file).exists() == b.has_file)
    {
        return Check::Warning(format!("{name} is {}", build.what), build.remedy.into());
    }
    let wanted = installation.exports.iter();
    let missing: Vec<&str> = wanted
        .filter(|(file, symbol, _)| !exports(&folder.join(file), symbol))
        .map(|(_, _, what)| *what)
        .collect();
    let [oldest, newest] = installation.tried;
    match missing.is_empty() {
        true if number(version) > newest => Check::Warning(
            format!("{name} is newer than what was tried; {}", installation.seen),
            format!(
                "reports were tested with {} {}.{} to {}.{}",
                framework.name, oldest.0, oldest.1, newest.0, newest.1
            ),
        ),
        true => Check::Good(format!("{name}, {}", installation.seen)),
        false => Check::Warning(
            format!("{name}: the symbols that report {} are missing", missing.join(" and ")),
            format!("{}; otherwise only the driver's memory is seen", installation.remedy),
        ),
    }
}

/// Returns the major and the minor number of a version.
fn number(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Returns true if a library exports a symbol with this prefix.
fn exports(library: &Path, symbol: &str) -> bool {
    let Ok(bytes) = fs::read(library) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    file.dynamic_symbols().any(|s| s.is_definition() && s.name().is_ok_and(|name| name.starts_with(symbol)))
}
