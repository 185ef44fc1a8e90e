//! Every function in cudarc's bindings, over all CUDA versions they know, has a hook or a stated reason for
//! having none. Made from the one list of entry points, so that the two cannot drift apart.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

macro_rules! symbols {
    ($($id:ident = $library:ident $name:literal $symbol:literal $since:literal $thread:literal
        $room:ident::$hook:ident [$($end:literal)*];)+) => {
        /// Symbol, name, CUDA version.
        const LISTED: &[(&str, &str, i32)] = &[$((stringify!($id), $name, $since),)+];
    };
}
leaktrace_core::entry_points!(symbols);

/// The source of the crate with the bindings, as cargo resolved it.
fn bindings() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version", "1", "--locked", "--manifest-path"]);
    let out = metadata.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let cudarc = packages.iter().find(|p| p["name"] == "cudarc").expect("cudarc is a dependency");
    PathBuf::from(cudarc["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// The functions that `file` of the bindings declares, whatever CUDA version they are for.
fn functions(file: &str, prefix: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(bindings().join(file)).unwrap();
    let declared = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub unsafe fn "));
    let named = declared.filter_map(|rest| rest.split(['(', '<']).next());
    let ours =
        |name: &&str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(char::is_uppercase));
    named.filter(ours).map(str::to_owned).collect()
}

/// `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let Some(rest) = name.strip_prefix(head) else { return false };
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(tail, &rest[at..]))
        }
    }
}

/// Without the suffixes of a version and of the per-thread default stream.
fn base(symbol: &str) -> &str {
    let name = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

#[test]
fn every_function_is_hooked_or_has_a_reason() {
    let driver = functions("src/driver/sys/mod.rs", "cu");
    let runtime = functions("src/runtime/sys/mod.rs", "cuda");
    assert!(
        driver.len() > 450 && runtime.len() > 300,
        "{} and {}: not the bindings",
        driver.len(),
        runtime.len()
    );
    let reason = |name: &str| {
        leaktrace_core::entry_points::PASSED_OVER
            .iter()
            .find(|(pattern, _)| fits(pattern, name))
            .map(|(_, why)| *why)
    };
    let all = || driver.iter().chain(&runtime);
    let listed = |name: &str| LISTED.iter().any(|(symbol, ..)| *symbol == name);
    let unseen: Vec<&String> = all().filter(|name| !listed(name) && reason(name).is_none()).collect();
    assert!(unseen.is_empty(), "neither a hook nor a reason: {unseen:?}");
    // A new form of a function with a hook needs a hook, or a reason of its own.
    let form = |name: &str| LISTED.iter().any(|(symbol, ..)| base(symbol) == base(name));
    let own =
        |name: &str| leaktrace_core::entry_points::PASSED_OVER.iter().any(|(pattern, _)| *pattern == name);
    let forms: Vec<&String> = all().filter(|name| !listed(name) && form(name) && !own(name)).collect();
    assert!(forms.is_empty(), "forms of functions that have a hook, without one: {forms:?}");
}

/// What allocates cannot be passed over by a pattern: it is named, with a reason of its own, or it has a
/// hook.
#[test]
fn what_sounds_like_memory_is_not_swept_up() {
    let sounds = |name: &str| {
        let gives = ["Alloc", "MemCreate", "ArrayCreate", "Array3DCreate", "PoolCreate", "MulticastCreate"];
        let takes =
            ["MemFree", "Release", "Unmap", "Unregister", "ArrayDestroy", "PoolDestroy", "CloseMemHandle"];
        let lends = [
            "ImportExternalMemory",
            "DestroyExternalMemory",
            "OpenMemHandle",
            "ImportPointer",
            "HostRegister",
        ];
        let asks = [
            "Get",
            "Device",
            "Logs",
            "Graphics",
            "Granularity",
            "Coredump",
            "UserObject",
            "LogicalEndpoint",
            "SetParams",
        ];
        gives.iter().chain(&takes).chain(&lends).any(|part| name.contains(part))
            && !asks.iter().any(|part| name.contains(part))
    };
    let driver = functions("src/driver/sys/mod.rs", "cu");
    let of_memory: Vec<&String> = driver.iter().filter(|name| sounds(name)).collect();
    assert!(of_memory.len() > 25, "{of_memory:?}");
    for name in of_memory {
        let listed = LISTED.iter().any(|(symbol, ..)| symbol == name);
        let own = leaktrace_core::entry_points::PASSED_OVER.iter().any(|(pattern, _)| pattern == name);
        assert!(listed || own, "{name} sounds like memory: give it a hook or a reason of its own");
    }
}

/// No two rows are the same choice of name, version and stream.
#[test]
fn no_row_is_listed_twice() {
    for (i, (symbol, name, since)) in LISTED.iter().enumerate() {
        for (other, other_name, other_since) in &LISTED[..i] {
            assert_ne!(symbol, other);
            let threads = |s: &str| s.ends_with("_ptsz") || s.ends_with("_ptds");
            let same = name == other_name && since == other_since && threads(symbol) == threads(other);
            assert!(!same || *since == 0, "{symbol} and {other} are the same choice");
        }
    }
}
