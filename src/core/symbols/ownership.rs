//! Whose code a frame is: the user's, the standard library's, a package's, a framework's.

use super::{FrameKind, NamedFrame, frame_filter};
use crate::frameworks;

/// How the names of object files begin that never are the user's.
const RUNTIME: [&str; 24] = [
    "libleaktrace",
    "libcu",
    "libnv",
    "libnccl",
    "libc10",
    "libtorch",
    "libshm.",
    "libjax",
    "xla_",
    "pjrt_",
    "_jax.",
    "_xla.",
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
const CARRIERS: [&str; 5] = ["libleaktrace", "libcuda.", "libcudart", "libc10.", "libc10_cuda."];

/// How the runtime's functions begin that are linked into a program: those of its own, and those that are documented. They
/// have no lines.
const STATIC_RUNTIME: [&str; 2] = ["libcudart_static_", "cuda"];

/// Folders that packages are installed in, and the ends of names of folders that are installed packages.
const PACKAGE_FOLDERS: [&str; 3] = ["site-packages", "dist-packages", "installed_wheels"];
const PACKAGE_ENDS: [&str; 2] = [".whl", ".egg"];

/// Packages that run a user's program: `python -m torch.distributed.run train.py` makes PyTorch no user's code.
const LAUNCHERS: [&str; 9] = [
    "torch",
    "accelerate",
    "deepspeed",
    "lightning",
    "lightning_fabric",
    "pytest",
    "coverage",
    "cProfile",
    "pdb",
];

/// What tells the user's code from that of packages.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    /// Paths of installed modules outside of the usual folders.
    packages: Vec<String>,
    /// The package that is the program: `NAME` of `python -m NAME.train`.
    program: Option<String>,
}

impl Ownership {
    /// `packages`: paths, one a line. `arguments`: the program's, with its own name.
    pub fn new<'a>(packages: &str, arguments: impl Iterator<Item = &'a str>) -> Ownership {
        // Options of the interpreter may come before; what comes after a script is the script's.
        let mut options = arguments.skip(1).skip_while(|a| a.starts_with('-') && *a != "-m" && *a != "-c");
        let module = options.next().filter(|a| *a == "-m").and_then(|_| options.next());
        let name = module.and_then(|m| m.split('.').next()).filter(|name| !LAUNCHERS.contains(name));
        Ownership {
            packages: packages.lines().filter(|p| !p.is_empty()).map(str::to_owned).collect(),
            program: name.map(str::to_owned),
        }
    }

    /// Returns whether packages are installed in a folder of this name.
    pub fn is_package_folder(folder: &str) -> bool {
        let is_one = |part: &str| {
            PACKAGE_FOLDERS.contains(&part) || PACKAGE_ENDS.iter().any(|end| part.ends_with(end))
        };
        folder.split('/').any(is_one)
    }

    /// Returns the innermost frame in the user's own code; else the innermost Python frame outside frameworks; else the
    /// innermost Python frame; of a native stack the innermost frame outside the runtime's libraries, else PyTorch's
    /// operator, else the innermost frame that asked the driver, its runtime or the caching allocator, else the innermost.
    pub fn allocated_at<'f>(&self, frames: &'f [NamedFrame]) -> Option<&'f NamedFrame> {
        let python = || frames.iter().filter(|f| f.kind == FrameKind::Python && !f.file.is_empty());
        let own = || python().filter(|f| self.is_own(f));
        // What `python -c` or the user's `exec` runs begins with a module; what dataclasses, graphs and their like make
        // is called.
        let callers = python().skip(1).map(Some).chain([None]);
        let is_text = |f: &NamedFrame, caller: Option<&NamedFrame>| {
            f.function == "<module>" && is_without_file(&f.file) && caller.is_none_or(|c| self.is_own(c))
        };
        let texts = python().zip(callers).filter(|&(f, caller)| is_text(f, caller));
        let texts: Vec<String> = texts.map(|(f, _)| letters(&f.file)).collect();
        // Code that was made at run time is seldom what a person can look up: its caller is.
        own()
            .find(|f| !is_generated(&f.file) || texts.contains(&letters(&f.file)))
            .or_else(|| own().next())
            .or_else(|| python().find(|f| !frameworks::is_own_file(&f.file) && !is_internal(&f.file)))
            .or_else(|| python().find(|f| !is_internal(&f.file)))
            .or_else(|| frames.iter().find(|f| f.kind == FrameKind::Native && !is_runtime(f)))
            // All of it is the runtime's: at least the one that made the request.
            .or_else(|| self.requester(frames))
            .or_else(|| frames.iter().find(|f| f.kind == FrameKind::Native && !is_of(f, &CARRIERS)))
            .or_else(|| frames.first())
    }

    /// Returns the innermost native frame that says what the memory is for, behind those who carried the request out.
    fn requester<'f>(&self, frames: &'f [NamedFrame]) -> Option<&'f NamedFrame> {
        let behind = frames.iter().take_while(|f| is_of(f, &CARRIERS)).count();
        frame_filter::requester(&frames[behind..])
    }

    /// Returns the innermost frame of a package other than a framework that the user's own code called; `None` where the line
    /// that allocates is not the user's.
    pub fn library_at<'f>(&self, frames: &'f [NamedFrame]) -> Option<&'f NamedFrame> {
        let at = self.allocated_at(frames).filter(|f| self.is_own(f))?;
        let called = frames.iter().take_while(|f| !std::ptr::eq(*f, at));
        let mut packaged = called.filter(|f| f.kind == FrameKind::Python && self.is_packaged(&f.file));
        packaged.find(|f| !frameworks::is_own_file(&f.file) && !frameworks::wraps_driver(&f.file))
    }

    /// Returns whether a frame is Python's and neither in a package, nor in the standard library, nor in the
    /// interpreter itself.
    pub fn is_own(&self, frame: &NamedFrame) -> bool {
        frame.kind == FrameKind::Python && self.is_own_file(&frame.file)
    }

    /// Returns whether a file of Python code is the user's own.
    pub fn is_own_file(&self, file: &str) -> bool {
        if file.is_empty() || is_internal(file) {
            return false;
        }
        self.is_program(file) || !(self.is_packaged(file) || in_python_dir(file))
    }

    /// Returns whether a file of Python code was installed with a package, and is no part of the program.
    pub fn is_packaged(&self, file: &str) -> bool {
        let is_installed =
            Ownership::is_package_folder(file) || self.packages.iter().any(|package| is_in(file, package));
        is_installed && !self.is_program(file)
    }

    /// Returns whether a file of a package is part of the program.
    fn is_program(&self, file: &str) -> bool {
        let Some(name) = &self.program else { return false };
        file.split('/').any(|part| part == name || part.strip_suffix(".py") == Some(name))
    }
}

/// Returns whether a file is a module, or lies in a folder of modules.
fn is_in(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether the file of code is only a name for it.
fn is_without_file(file: &str) -> bool {
    file.starts_with('<')
}

/// Returns whether a file of code exists nowhere, nor was typed by a person.
fn is_generated(file: &str) -> bool {
    const TYPED: [&str; 3] = ["<stdin>", "<console>", "<ipython-input-"];
    is_without_file(file) && !TYPED.iter().any(|start| file.starts_with(start))
}

/// Returns what the names of one maker's pieces of code have in common: `<cell 7>` is beside `<cell 12>`.
fn letters(file: &str) -> String {
    file.chars().filter(|c| c.is_alphabetic()).collect()
}

fn is_internal(file: &str) -> bool {
    file.starts_with("<frozen ") || file.starts_with("<__")
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
    is_of(frame, &RUNTIME) || is_static_runtime(frame)
}

fn is_static_runtime(frame: &NamedFrame) -> bool {
    let [own, documented] = STATIC_RUNTIME.map(|start| frame.function.strip_prefix(start));
    let documented = documented.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()));
    frame.line.is_none() && (own.is_some() || documented)
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
        let own = |file| Ownership::default().is_own(&python(file));
        assert!(own("train.py") && own("/home/u/lib/train.py") && own("<stdin>") && own("<string>"));
        assert!(!own("/v/lib/python3.11/site-packages/torch/nn/functional.py"));
        assert!(!own("/usr/lib/python3/dist-packages/x.py"));
        assert!(!own("/usr/lib/python3.9/threading.py") && !own("/opt/lib64/python3.13/x.py"));
        assert!(!own("<frozen importlib._bootstrap>"));
        assert!(!own("/h/.pex/installed_wheels/12/torch-2.11-cp311.whl/torch/nn/functional.py"));
        assert!(!Ownership::default().is_own(&native("/home/u/a.out")));
    }

    #[test]
    fn the_packages_frame_that_tells_causes_of_one_line_apart() {
        let within = |files: &[NamedFrame]| Ownership::default().library_at(files).map(|f| f.file.clone());
        let package = |name: &str| python(&format!("/v/lib/python3.11/site-packages/{name}"));
        let (torch, outer, inner) =
            (package("torch/nn/functional.py"), package("a/trainer.py"), package("a/loop.py"));
        let standard = python("/v/lib/python3.11/contextlib.py");
        let stack = [torch.clone(), standard, inner.clone(), outer.clone(), python("t.py")];
        assert_eq!(within(&stack).as_deref(), Some(inner.file.as_str()));
        // What called the user's line says nothing of what it allocates; without such a line there is none.
        assert_eq!(within(&[torch.clone(), python("t.py"), outer.clone(), python("t.py")]), None);
        assert_eq!(within(&[torch, inner, outer]), None);
    }

    #[test]
    fn what_distributions_installed_anywhere_is_theirs() {
        let arguments = ["python", "train.py", "-m", "torch"];
        let some = Ownership::new("/home/u/deps/torch\n/home/u/deps/six.py", arguments.into_iter());
        assert!(
            !some.is_own_file("/home/u/deps/torch/nn/functional.py")
                && !some.is_own_file("/home/u/deps/six.py")
        );
        assert!(some.is_own_file("/home/u/deps/train.py") && some.is_own_file("/home/u/deps/torchery.py"));
    }

    #[test]
    fn a_package_that_is_the_program_is_the_users() {
        let run = |arguments: &[&'static str]| Ownership::new("", arguments.iter().copied());
        let (mine, torch) = ("/v/site-packages/mine/loop.py", "/v/site-packages/torch/x.py");
        let module = run(&["python", "-u", "-m", "mine.train", "--lr", "1"]);
        assert!(module.is_own_file(mine) && !module.is_own_file(torch));
        assert!(!run(&["python", "-m", "torch.distributed.run", "train.py"]).is_own_file(torch));
        assert!(!run(&["python", "train.py", "-m", "mine"]).is_own_file(mine));
    }

    #[test]
    fn the_allocating_frame_falls_back_outwards() {
        let at = |files: &[NamedFrame]| Ownership::default().allocated_at(files).map(|f| f.file.clone());
        let torch = python("/v/lib/python3.11/site-packages/torch/nn/functional.py");
        let other = python("/v/lib/python3.11/site-packages/lightning/x.py");
        assert_eq!(at(&[torch.clone(), other.clone(), python("t.py")]).as_deref(), Some("t.py"));
        assert_eq!(at(&[torch.clone(), other.clone()]), Some(other.file));
        assert_eq!(at(std::slice::from_ref(&torch)), Some(torch.file.clone()));
        let graph = python("<eval_with_key>.5");
        assert_eq!(at(&[torch.clone(), graph.clone(), python("t.py")]).as_deref(), Some("t.py"));
        assert_eq!(at(&[python("<stdin>"), python("t.py")]).as_deref(), Some("<stdin>"));
        assert_eq!(at(&[torch.clone(), graph.clone()]), Some(graph.file.clone()));
        // A dataclass's methods are made from a string; a program of `python -c` is one.
        let made = python("<string>");
        assert_eq!(at(&[made.clone(), python("t.py")]).as_deref(), Some("t.py"));
        let module = NamedFrame { function: "<module>".into(), ..made.clone() };
        assert_eq!(at(&[made.clone(), module, python("t.py")]).as_deref(), Some("<string>"));
        // So is what the user's code executes, and the functions of what it has executed before.
        let cell = NamedFrame { function: "<module>".into(), ..python("<cell 2>") };
        assert_eq!(at(&[torch.clone(), cell.clone(), python("t.py")]).as_deref(), Some("<cell 2>"));
        let stack = [torch.clone(), python("<cell 1>"), cell.clone(), python("t.py")];
        assert_eq!(at(&stack).as_deref(), Some("<cell 1>"));
        assert_eq!(at(&[graph, torch, cell, python("t.py")]).as_deref(), Some("<cell 2>"));
        let stack = [native("/x/libleaktrace.so"), native("/x/libcudart.so.12"), native("/home/u/a.out")];
        assert_eq!(at(&stack).as_deref(), Some("/home/u/a.out"));
        // A runtime that is linked into the program is the runtime's all the same; a function of the program's has lines.
        let function =
            |name: &str, line| NamedFrame { function: name.into(), line, ..native("/home/u/a.out") };
        let linked = [
            function("libcudart_static_53", None),
            function("cudaMalloc", None),
            function("cudaKeep", Some(7)),
        ];
        let found = Ownership::default().allocated_at(&linked).map(|f| f.function.clone());
        assert_eq!(found.as_deref(), Some("cudaKeep"));
        assert_eq!(at(&stack[..1]).as_deref(), Some("/x/libleaktrace.so"));
        let allocator = native("/v/torch/lib/libc10_cuda.so");
        let stack = [allocator.clone(), native("/v/torch/lib/libtorch_cpu.so"), native("/lib/libc.so.6")];
        assert_eq!(at(&stack).as_deref(), Some("/v/torch/lib/libtorch_cpu.so"));
        assert_eq!(at(&stack[..1]), Some(allocator.file));
        assert_eq!(at(&[]), None);
    }
}
