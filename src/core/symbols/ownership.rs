//! Whose code a frame is: the user's, the standard library's, a package's, a framework's.

use super::{FrameKind, NamedFrame};

/// How the names of object files begin that never are the user's.
const RUNTIME: [&str; 19] = [
    "libleaktrace",
    "libcu",
    "libnv",
    "libnccl",
    "libc10",
    "libtorch",
    "libshm.",
    "_C.",
    "libpython",
    "python3",
    "libc.so",
    "libc-",
    "libpthread",
    "libdl.",
    "libm.",
    "libstdc++",
    "libgcc_s",
    "libgomp",
    "ld-linux",
];

/// Those among them that only carry out a request of their caller.
const CARRIERS: [&str; 3] = ["libleaktrace", "libcuda.", "libcudart"];

/// Returns the innermost frame in the user's own code; else the innermost Python frame outside torch; else the innermost
/// Python frame; of a native stack the innermost frame outside the runtime's libraries, else the innermost that
/// asked the driver or its runtime, else the innermost.
pub fn allocated_at<'f>(frames: &'f [NamedFrame], stdlib: Option<&str>) -> Option<&'f NamedFrame> {
    let python = || frames.iter().filter(|f| f.kind == FrameKind::Python && !f.file.is_empty());
    python()
        .find(|f| is_own(f, stdlib))
        .or_else(|| python().find(|f| !f.file.contains("/torch/") && !is_internal(&f.file)))
        .or_else(|| python().find(|f| !is_internal(&f.file)))
        .or_else(|| frames.iter().find(|f| f.kind == FrameKind::Native && !is_runtime(f)))
        // All of it is the runtime's: at least the one that made the request.
        .or_else(|| frames.iter().find(|f| f.kind == FrameKind::Native && !is_of(f, &CARRIERS)))
        .or_else(|| frames.first())
}

/// Returns whether a Python frame is neither in a package, nor in the standard library, nor in the interpreter itself.
pub fn is_own(frame: &NamedFrame, stdlib: Option<&str>) -> bool {
    frame.kind == FrameKind::Python && is_own_file(&frame.file, stdlib)
}

/// Returns whether a file of Python code is the user's own.
pub fn is_own_file(file: &str, stdlib: Option<&str>) -> bool {
    !file.is_empty()
        && !is_internal(file)
        && !file.contains("/site-packages/")
        && !file.contains("/dist-packages/")
        && !stdlib.map_or_else(|| in_python_dir(file), |dir| is_under(file, dir))
}

fn is_internal(file: &str) -> bool {
    file.starts_with("<frozen ") || file.starts_with("<__")
}

fn is_under(file: &str, dir: &str) -> bool {
    let dir = dir.trim_end_matches('/');
    !dir.is_empty() && file.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// `…/lib/python3.11/…`, `…/lib64/python3.9/…`.
fn in_python_dir(file: &str) -> bool {
    let parts: Vec<&str> = file.split('/').collect();
    parts.windows(2).any(|w| {
        let minor = w[1].strip_prefix("python3.").unwrap_or("");
        w[0].starts_with("lib") && minor.chars().next().is_some_and(|c| c.is_ascii_digit())
    })
}

fn is_runtime(frame: &NamedFrame) -> bool {
    is_of(frame, &RUNTIME)
}

fn is_of(frame: &NamedFrame, libraries: &[&str]) -> bool {
    let Some(path) = &frame.module else { return true };
    let base = path.rsplit('/').next().unwrap_or(path);
    libraries.iter().any(|start| base.starts_with(start)) || base.starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(file: &str) -> NamedFrame {
        NamedFrame {
            kind: FrameKind::Python,
            file: file.into(),
            line: Some(1),
            function: "f".into(),
            module: None,
        }
    }

    fn native(path: &str) -> NamedFrame {
        NamedFrame { kind: FrameKind::Native, module: Some(path.into()), ..python(path) }
    }

    #[test]
    fn own_code_is_what_is_neither_packaged_nor_part_of_python() {
        let own = |file| is_own(&python(file), None);
        assert!(own("train.py") && own("/home/u/lib/train.py") && own("<stdin>") && own("<string>"));
        assert!(!own("/v/lib/python3.11/site-packages/torch/nn/functional.py"));
        assert!(!own("/usr/lib/python3/dist-packages/x.py"));
        assert!(!own("/usr/lib/python3.9/threading.py") && !own("/opt/lib64/python3.13/x.py"));
        assert!(!own("<frozen importlib._bootstrap>"));
        let under = |file| is_own(&python(file), Some("/opt/py/lib/python3.11"));
        assert!(!under("/opt/py/lib/python3.11/queue.py") && under("/home/u/lib/python3.11/mine.py"));
        assert!(!is_own(&native("/home/u/a.out"), None));
    }

    #[test]
    fn the_allocating_frame_falls_back_outwards() {
        let at = |files: &[NamedFrame]| allocated_at(files, None).map(|f| f.file.clone());
        let torch = python("/v/lib/python3.11/site-packages/torch/nn/functional.py");
        let other = python("/v/lib/python3.11/site-packages/lightning/x.py");
        assert_eq!(at(&[torch.clone(), other.clone(), python("t.py")]).as_deref(), Some("t.py"));
        assert_eq!(at(&[torch.clone(), other.clone()]), Some(other.file));
        assert_eq!(at(std::slice::from_ref(&torch)), Some(torch.file));
        let stack = [native("/x/libleaktrace.so"), native("/x/libcudart.so.12"), native("/home/u/a.out")];
        assert_eq!(at(&stack).as_deref(), Some("/home/u/a.out"));
        assert_eq!(at(&stack[..1]).as_deref(), Some("/x/libleaktrace.so"));
        assert_eq!(at(&[]), None);
    }
}
