//! What is known of each framework whose blocks are seen: which files are its own, what an installation must have for its
//! blocks to be seen, and the words by which its users are told what to do. One row each; how its blocks are seen stands
//! in the preload's `frameworks`.

use std::ffi::CStr;
use std::ops::RangeInclusive;

/// A framework, or a part of one that gives out memory.
#[derive(Debug)]
pub struct Framework {
    pub name: &'static str,
    /// The number, beyond those of [`mod@crate::entry_points`], that its blocks bear as their entry point, and its name in
    /// reports. PyTorch's blocks bear none.
    pub allocator: Option<(u16, &'static str)>,
    /// The numbers that its blocks bear instead where one operation gives several at a time, on one line: each output of
    /// a compiled function has another life than the others. The last one stands for all behind it.
    outputs: Option<RangeInclusive<u16>>,
    /// Its Python packages, that which it is installed by first.
    packages: &'static [&'static str],
    pub installation: Installation,
    /// What reports every step of an optimizer, if anything does.
    pub optimizer_steps: Option<OptimizerSteps>,
    /// Whether its own innermost frames are left out of stacks: it comes to the same allocation by several ways (the
    /// first call of a compiled function, and the later ones), which are one line of the program.
    folds: bool,
    /// What to keep instead of what was computed: a number.
    pub number: &'static str,
    /// The same, where it may be more than a number, and where a block is too large for one.
    pub copy: &'static str,
    pub large_copy: &'static str,
    /// What cuts a result off from the graph that computed it, if there is such a graph.
    pub cuts_graph: Option<&'static str>,
    /// How the path from what a derivative returned goes on, and what to do where such functions are kept.
    pub kept_derivative: Option<(&'static str, &'static str)>,
    /// What to do where a gradient's own graph keeps the tensor that the gradient is of.
    pub gradient_cycle: Option<&'static str>,
    /// What to do where a hook in a graph keeps a tensor of that graph.
    pub hook_cycle: Option<&'static str>,
    /// The bytes of a block for a number of Python's, if it keeps each that it ever copied to the device, and how to avoid that.
    pub kept_numbers: Option<(u64, &'static str)>,
    /// How the path to a gradient ends, and what to do where those of one step live on into the next.
    pub gradients: Option<(&'static str, &'static str)>,
    /// What a kept model is, if one is told from what was computed.
    pub models: Option<Models>,
    /// How the path to a variable's value ends, if there are variables: the value before is needed to compute the next one.
    state: Option<&'static str>,
    /// What to do where ever more variables are kept.
    pub new_variables: &'static str,
    /// What gives the memory of an argument on to a result, if anything does.
    pub gives_on: Option<&'static str>,
    /// What keeps it from compiling ever more programs, if it compiles any that are seen, and what releases those that are there.
    pub recompiles: Option<(&'static str, &'static str)>,
    /// How the path to what its own caches keep begins, and what to do where these grow.
    pub own_caches: Option<(&'static str, &'static str)>,
    /// What gives cached memory back to the driver, if anything does.
    pub releases_cache: Option<&'static str>,
    /// The file and the name of the function of Python's that does.
    releasing_function: Option<(&'static str, &'static str)>,
    /// Whether the allocator gives segments back that no block lies in: else none is kept from it by a block.
    pub returns_segments: bool,
    /// What lets the allocator grow a segment in place, if anything does.
    pub grows_segments: Option<&'static str>,
    /// What the allocator leaves a block beyond what was asked for.
    leaves: Leaves,
}

/// What an allocator leaves a block that it found in a larger gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// A block of more than this up to so much more.
    AsMuchBeyond(u64),
    /// Up to half of the block, and no more than this.
    HalfUpTo(u64),
}

impl Framework {
    /// Returns whether half of a block may be spare, whatever its size.
    pub fn leaves_half(&self) -> bool {
        matches!(self.leaves, Leaves::HalfUpTo(_))
    }

    /// Returns how many bytes of so many blocks of its may be spare: what is larger than the others is to hold more than those.
    /// `rounded_to`: what sizes are rounded up to.
    pub fn spare(&self, bytes: i64, blocks: i64, rounded_to: i64) -> i64 {
        let blocks = blocks.max(0);
        match self.leaves {
            Leaves::AsMuchBeyond(most) => {
                let least = blocks.saturating_mul(most as i64 + rounded_to);
                bytes.saturating_sub(least).clamp(0, blocks.saturating_mul(most as i64))
            }
            Leaves::HalfUpTo(most) => (bytes / 2).clamp(0, blocks.saturating_mul(most as i64)),
        }
    }
}

/// What an installation of a framework must have for its blocks to be seen. Files are in the folder of its package.
#[derive(Debug)]
pub struct Installation {
    /// What is seen of it, where all is there.
    pub seen: &'static str,
    /// Files, how the names of symbols begin that they must export, and what these report.
    pub exports: &'static [(&'static str, &'static str, &'static str)],
    /// What to install where they do not.
    pub remedy: &'static str,
    /// Builds whose memory is not seen.
    pub unseen_builds: &'static [UnseenBuild],
    /// The oldest and the newest version, major and minor, with which reports were held against the truth. Nothing is assumed
    /// of a version: what is read of a framework is found by its symbols and type names.
    pub tried: [(u32, u32); 2],
}

/// A function of Python's that takes a function `hook(optimizer, args, kwargs)`, which is called after every step.
#[derive(Debug)]
pub struct OptimizerSteps {
    /// The package, and the module that has the function. It is complete when the package is.
    pub package: &'static CStr,
    pub module: &'static CStr,
    pub function: &'static CStr,
}

/// The variables of a model.
#[derive(Debug)]
pub struct Models {
    /// Parts of the paths and names of the functions of Python's below which they are allocated.
    made_in: &'static [(&'static str, &'static str)],
    /// What to do where ever more of them are kept.
    pub advice: &'static str,
    pub optimizers: Option<Optimizers>,
}

/// How a path goes on from a dict to its keys.
pub const KEYS: &str = " → its keys";

/// Optimizers, which refer to the variables of a model and have some for each.
#[derive(Debug)]
pub struct Optimizers {
    /// What their files have in their paths.
    files: &'static str,
    /// How a path goes on from one: what no other object has, and what others may have too; each with the number of
    /// subscripts that lead to what it has of one variable.
    own: (&'static str, usize),
    common: &'static [(&'static str, usize)],
    /// What to do where one has ever more variables, and where it has none of those any more that it keeps something of.
    pub advice: &'static str,
    pub stale_advice: &'static str,
}

impl Optimizers {
    /// Returns whether a file is an optimizer's.
    pub fn have_file(&self, file: &str) -> bool {
        file.contains(self.files)
    }

    /// Returns whether a path leads to variables that are the keys of what an optimizer has of each.
    pub fn have_keys_in(&self, path: &str) -> bool {
        self.common.iter().any(|(end, _)| end.ends_with(KEYS) && path.contains(end))
    }

    /// Returns whether a path leads through an optimizer for certain.
    pub fn are_named_in(&self, path: &str) -> bool {
        path.contains(self.own.0)
    }

    /// Returns the part of a path that leads to an optimizer, if it leads through one, and the part behind what it has of
    /// one variable.
    pub fn path<'p>(&self, path: &'p str) -> Option<(&'p str, &'p str)> {
        let ends = [self.own].into_iter().chain(self.common.iter().copied());
        let (at, subscripts) =
            ends.filter_map(|(end, subscripts)| Some((path.find(end)?, subscripts))).min()?;
        let (to, behind) = path.split_at(at);
        let mut inside = behind.splitn(subscripts + 1, ']');
        Some((to, inside.nth(subscripts).unwrap_or_default()))
    }
}

impl Models {
    /// Returns whether a function allocates a model's variables.
    pub fn are_made_in(&self, file: &str, function: &str) -> bool {
        self.made_in.iter().any(|(files, functions)| file.contains(files) && function.contains(functions))
    }
}

/// A build whose memory is not seen.
#[derive(Debug)]
pub struct UnseenBuild {
    /// A file, and whether such a build has it.
    pub file: &'static str,
    pub has_file: bool,
    /// How it differs, and what to do.
    pub what: &'static str,
    pub remedy: &'static str,
}

pub const PYTORCH: Framework = Framework {
    name: "PyTorch",
    allocator: None,
    outputs: None,
    packages: &["torch"],
    installation: Installation {
        seen: "its reporting symbols are found",
        exports: &[
            ("lib/libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "blocks"),
            ("lib/libtorch_cpu.so", "_ZN5torch8autograd6Engine7executeE", "backward passes"),
        ],
        remedy: "use a wheel of PyTorch 2.0 or later",
        unseen_builds: &[
            UnseenBuild {
                file: "lib/libtorch_hip.so",
                has_file: true,
                what: "built for ROCm: calls of AMD's driver are not seen",
                remedy: "only blocks of PyTorch's allocator may be seen; this was never tried on an AMD GPU",
            },
            UnseenBuild {
                file: "lib/libtorch_cuda.so",
                has_file: false,
                what: "built without CUDA",
                remedy: "install a CUDA build: this one never uses the GPU",
            },
        ],
        tried: [(2, 0), (2, 15)],
    },
    // Before PyTorch 2.0 there is no such function.
    optimizer_steps: Some(OptimizerSteps {
        package: c"torch",
        module: c"torch.optim.optimizer",
        function: c"register_optimizer_step_post_hook",
    }),
    folds: false,
    number: "`.item()`",
    copy: "`.item()` (if it is one number) or `.detach().cpu()`",
    // What `mse_loss` gives is one number in a large block.
    large_copy: "`.detach().cpu()` (or `.item()`, if it is one number)",
    cuts_graph: Some("`.detach()`"),
    kept_derivative: None,
    gradient_cycle: Some(
        "call `torch.autograd.grad(…, create_graph=True)` instead of `backward(create_graph=True)`, or set the `.grad` of each \
         leaf to None once it is no longer needed",
    ),
    hook_cycle: Some(
        "let the hook keep the tensor's `.detach()`, not the tensor itself, or remove the hook after the backward pass \
         (`handle.remove()`)",
    ),
    kept_numbers: None,
    gradients: Some((
        ".grad",
        "call `zero_grad()` right after the optimizer's step: gradients that wait for the next one lie there while the next \
         forward pass runs",
    )),
    models: Some(Models {
        made_in: &[
            ("/torch/nn/modules/", "__init__"),
            ("/torch/nn/modules/module.py", "_apply"),
            ("/torch/optim/", "_init_group"),
        ],
        advice: "drop the models and optimizers that are no longer needed, or keep a `state_dict()` on the CPU",
        optimizers: Some(Optimizers {
            files: "/torch/optim/",
            own: (".param_groups[", 3),
            common: &[(".state[", 2), (".state → its keys", 1)],
            advice: "remove the parameter groups that are no longer needed, and their entries in `state`",
            stale_advice: "remove the entries of parameters that were replaced from `state` (`del optimizer.state[old]`), and \
                           those parameters from `param_groups` where they are still there",
        }),
    }),
    state: None,
    new_variables: "",
    gives_on: None,
    recompiles: None,
    own_caches: None,
    releases_cache: Some("`torch.cuda.empty_cache()`"),
    releasing_function: Some(("memory.py", "empty_cache")),
    returns_segments: true,
    grows_segments: Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    leaves: Leaves::AsMuchBeyond(1 << 20),
};

/// XLA's plugins, by whichever framework they are used: JAX, as good as always.
pub const JAX: Framework = Framework {
    name: "JAX",
    allocator: Some((1000, "PJRT")),
    outputs: Some(2000..=u16::MAX),
    packages: &["jax", "jaxlib"],
    installation: Installation {
        seen: "its arrays are seen on every device that a plugin of XLA's brings, as for GPUs",
        exports: &[],
        remedy: "",
        unseen_builds: &[],
        tried: [(0, 4), (0, 12)],
    },
    optimizer_steps: None,
    folds: true,
    number: "`float(x)`",
    copy: "`float(x)` (if it is one number) or `np.array(x)`",
    large_copy: "`np.array(x)`",
    cuts_graph: None,
    kept_derivative: Some((
        ".opaque_residuals",
        "do not keep what `jax.vjp` returned: call it and drop it, as it keeps all that the derivative needs",
    )),
    gradient_cycle: None,
    hook_cycle: None,
    kept_numbers: None,
    gradients: None,
    models: None,
    state: None,
    new_variables: "",
    gives_on: Some("`donate_argnums`"),
    recompiles: Some((
        "call the compiled function with the same static arguments and arrays of few shapes (pad what has many lengths), and \
         make it once, outside of the loop",
        "`jax.clear_caches()` releases what is compiled",
    )),
    own_caches: Some((
        "jax._src.",
        "pass arrays to a compiled function as arguments: JAX's caches keep those that are in a static argument, or that the \
         function takes from around it; `jax.clear_caches()` releases them",
    )),
    releases_cache: None,
    releasing_function: None,
    returns_segments: true,
    grows_segments: None,
    leaves: Leaves::AsMuchBeyond(1 << 20),
};

/// Keras is no part of it: its loops are the program's, as other trainers' are.
pub const TENSORFLOW: Framework = Framework {
    name: "TensorFlow",
    allocator: Some((1001, "BFCAllocator")),
    outputs: None,
    packages: &["tensorflow"],
    installation: Installation {
        seen: "the functions of its pool are found",
        exports: &[(
            "libtensorflow_framework.so.2",
            "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE",
            "blocks",
        )],
        remedy: "use a wheel of TensorFlow 2.16 to 2.21",
        unseen_builds: &[],
        tried: [(2, 16), (2, 21)],
    },
    optimizer_steps: None,
    folds: true,
    number: "`.numpy()`",
    copy: "`.numpy()`",
    large_copy: "`.numpy()`",
    cuts_graph: None,
    kept_derivative: Some((
        " → what it recorded",
        "do not keep the tape: compute what is needed of it within the step and drop it (`del tape`); it keeps the results of all \
         operations that it has recorded, a persistent one also after `gradient`",
    )),
    gradient_cycle: None,
    hook_cycle: None,
    kept_numbers: Some((
        256,
        "pass `tf.constant(np.float32(x))` or an array instead of a number of Python's: TensorFlow keeps each number that is \
         new to it on the device, for as long as the program runs",
    )),
    gradients: None,
    models: Some(Models {
        made_in: &[("/keras/", "add_weight"), ("/keras/", "add_variable"), ("/keras/", "_initialize")],
        advice: "drop the models that are no longer needed, or keep `get_weights()`; `keras.backend.clear_session()` forgets \
                 what Keras itself keeps",
        optimizers: None,
    }),
    state: Some("._handle"),
    new_variables: "make one variable and `assign` to it, instead of a new one each time",
    gives_on: None,
    recompiles: None,
    own_caches: None,
    releases_cache: None,
    releasing_function: None,
    returns_segments: false,
    grows_segments: None,
    leaves: Leaves::HalfUpTo(128 << 20),
};

/// Its arrays are no graph, and its models are others'.
pub const CUPY: Framework = Framework {
    name: "CuPy",
    allocator: Some((1002, "MemoryPool")),
    outputs: None,
    packages: &["cupy"],
    installation: Installation {
        seen: "its pool's memory hooks are used; without the pool its arrays are seen as the driver's",
        exports: &[],
        remedy: "",
        unseen_builds: &[],
        tried: [(12, 3), (14, 2)],
    },
    optimizer_steps: None,
    folds: false,
    number: "`float(x)`",
    copy: "`float(x)` (if it is one number) or `cupy.asnumpy(x)`",
    large_copy: "`cupy.asnumpy(x)`",
    cuts_graph: None,
    kept_derivative: None,
    gradient_cycle: None,
    hook_cycle: None,
    kept_numbers: None,
    gradients: None,
    models: None,
    state: None,
    new_variables: "",
    gives_on: None,
    recompiles: None,
    own_caches: None,
    releases_cache: Some("`cupy.get_default_memory_pool().free_all_blocks()`"),
    releasing_function: None,
    returns_segments: true,
    grows_segments: None,
    leaves: Leaves::AsMuchBeyond(1 << 20),
};

pub const ALL: [&Framework; 4] = [&PYTORCH, &JAX, &TENSORFLOW, &CUPY];

/// A library that takes memory from the driver for an arena of its own, whose parts nobody sees.
#[derive(Debug)]
pub struct Arena {
    pub package: &'static str,
    /// What takes the memory, in reports.
    pub name: &'static str,
    /// What is to be done where it grows.
    pub advice: &'static str,
}

pub const ARENAS: [Arena; 1] = [Arena {
    package: "onnxruntime",
    name: "arena of ONNX Runtime",
    advice: "release the `OrtValue`s and sessions that are no longer needed: the arena grows when all of it is in use, and \
                 gives nothing back. One session serves all requests; `arena_extend_strategy=kSameAsRequested` makes \
                 it grow by what is asked for",
}];

/// Folders of what wraps the driver's calls for Python (numba's, cuda-python's): every allocation passes through the same few
/// functions there, which say nothing of it.
const DRIVER_WRAPPERS: [&str; 2] = ["/cuda/cudadrv/", "/cuda/bindings/"];

/// Returns whether a file wraps the driver's calls.
pub fn wraps_driver(file: &str) -> bool {
    DRIVER_WRAPPERS.iter().any(|folder| file.contains(folder))
}

/// Returns the arena that an allocation is for, by the files of its Python stack, innermost first.
pub fn arena_of<'a>(files: impl IntoIterator<Item = &'a str>) -> Option<&'static Arena> {
    files.into_iter().find_map(|file| ARENAS.iter().find(|arena| is_of(file, &[arena.package])))
}

/// Returns the framework that gave a block, by the name of the entry point that the block bears.
pub fn of_block(entry_point: Option<&str>) -> &'static Framework {
    let bears = |f: &&&Framework| f.allocator.is_some_and(|(_, name)| Some(name) == entry_point);
    ALL.iter().find(bears).copied().unwrap_or(&PYTORCH)
}

/// Returns the framework whose outputs bear such a number.
fn gives(entry_point: u16) -> Option<&'static Framework> {
    let gives = |f: &&&Framework| f.outputs.as_ref().is_some_and(|all| all.contains(&entry_point));
    ALL.iter().find(gives).copied()
}

/// Returns the number by which an entry point, or what a block bears as one, has its name.
pub fn named(entry_point: u16) -> u16 {
    gives(entry_point).and_then(|f| f.allocator).map_or(entry_point, |(number, _)| number)
}

/// Returns the numbers of the outputs before one of the same operation, the nearest first.
pub fn outputs_before(entry_point: u16) -> impl Iterator<Item = u16> {
    let first = gives(entry_point).and_then(|f| f.outputs.as_ref()).map_or(entry_point, |all| *all.start());
    (first..entry_point).rev()
}

/// Returns the framework that gave a block, by the number of the entry point that the block bears.
pub fn of_number(entry_point: u16) -> &'static Framework {
    let bears = |f: &&&Framework| f.allocator.is_some_and(|(number, _)| number == named(entry_point));
    ALL.iter().find(bears).copied().unwrap_or(&PYTORCH)
}

/// Returns whether a file that belongs to some package is a framework's own.
pub fn is_own_file(file: &str) -> bool {
    ALL.iter().any(|f| f.has_file(file))
}

/// Returns whether the innermost frames of the code in a file, which belongs to some package, are left out of stacks.
pub fn is_folded(file: &str) -> bool {
    ALL.iter().any(|f| f.folds && f.has_file(file))
}

/// Returns whether a function of Python's gives a framework's cached memory back to the driver.
pub fn releases_cache(file: &str, function: &str) -> bool {
    let does =
        |f: &&Framework| f.releasing_function == Some((file.rsplit('/').next().unwrap_or(file), function));
    ALL.iter().any(|f| does(f) && f.has_file(file))
}

impl Framework {
    /// Returns the Python package that it is installed by.
    pub fn package(&self) -> &'static str {
        self.packages[0]
    }

    /// Returns the number that the block of an output bears, by its position from 0 on.
    pub fn output(&self, position: usize) -> Option<u16> {
        let all = self.outputs.as_ref()?;
        let number = u16::try_from(position).ok().and_then(|position| all.start().checked_add(position));
        Some(number.map_or(*all.end(), |number| number.min(*all.end())))
    }

    /// Returns the path to a variable, of that to its value.
    pub fn variable<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.state.and_then(|end| path.strip_suffix(end))
    }

    /// Returns whether a holder's path is that to the value of a variable.
    pub fn is_state(&self, path: &str) -> bool {
        self.state.is_some_and(|end| path.ends_with(end))
    }

    /// Returns the number that its blocks bear as their entry point.
    pub const fn number_of_allocator(&self) -> u16 {
        match self.allocator {
            Some((number, _)) => number,
            None => 0,
        }
    }

    fn has_file(&self, file: &str) -> bool {
        is_of(file, self.packages)
    }
}

/// Returns whether a file is that of an optimizer of a framework's.
pub fn is_of_optimizer(file: &str) -> bool {
    let mut optimizers = ALL.into_iter().filter_map(|f| f.models.as_ref()?.optimizers.as_ref());
    optimizers.any(|optimizers| optimizers.have_file(file))
}

/// Returns, of paths that lead to variables, the beginnings of those that lead to an optimizer of them.
pub fn optimizers_in<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
    let of_all = || ALL.into_iter().filter_map(|f| f.models.as_ref()?.optimizers.as_ref());
    let to = |path| Some(of_all().find(|of| of.are_named_in(path))?.path(path)?.0);
    paths.filter_map(to).collect()
}

/// Returns whether a file is one of these packages'.
fn is_of(file: &str, packages: &[&str]) -> bool {
    // A user's own folder above that of the packages (site-packages, dist-packages) may have any name.
    match file.rsplit_once("-packages/") {
        Some((_, inside)) => inside.split_once('/').is_some_and(|(package, _)| packages.contains(&package)),
        None => file.split('/').rev().skip(1).any(|folder| packages.contains(&folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_outputs_have_the_name_of_their_allocator() {
        let numbers = [0, 1, 63_535, 63_536, usize::MAX].map(|position| JAX.output(position).unwrap_or(0));
        assert_eq!(numbers, [2000, 2001, u16::MAX, u16::MAX, u16::MAX]);
        assert_eq!(numbers.map(named), [1000; 5]);
        assert_eq!([0, 1, 1000].map(named), [0, 1, 1000]);
        assert_eq!(PYTORCH.output(1), None);
    }

    #[test]
    fn a_framework_has_the_files_of_its_packages() {
        let own =
            ["/v/site-packages/torch/nn/x.py", "/jax/lib/site-packages/jax/_src/x.py", "/h/deps/torch/x.py"];
        assert!(own.into_iter().all(is_own_file));
        let others = [
            "/jax/site-packages/numpy/x.py",
            "/v/site-packages/kit/torch/x.py",
            "/h/jax.py",
            "/h/torchery/x.py",
        ];
        assert!(!others.into_iter().any(is_own_file));
        let arena = arena_of(["/v/site-packages/onnxruntime/capi/x.py", "/h/serve.py"]);
        assert_eq!(arena.map(|arena| arena.name), Some("arena of ONNX Runtime"));
        assert!(arena_of(["/h/serve.py"]).is_none());
        assert!(is_folded("/v/dist-packages/jaxlib/x.py") && !is_folded("/v/site-packages/torch/x.py"));
    }
}
