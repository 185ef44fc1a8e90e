//! Which native frames a reader is better off without: the interpreter's own between two Python functions, those of
//! PyTorch's dispatcher between an operator's name and its kernel, those of its caching allocator. One table of rules over
//! demangled names and modules. Knows names only. A frame without a name is hidden in the allocator's libraries and in the
//! interpreter, which are often stripped: nobody knows what another one stands for.

use super::{FrameKind, NamedFrame};

/// What a native frame does for whoever reads the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The interpreter's machinery.
    Evaluator,
    /// From an operator to its kernel.
    Dispatcher,
    /// An operator as it is called, which names it where the kernel does not.
    Called,
    /// What Python calls of PyTorch's, which parses arguments.
    Binding,
    /// Between a kernel and the allocator, which makes the tensor that the memory is for.
    Factory,
    /// The caching allocator itself.
    Allocator,
    /// Autograd's engine, around a node.
    Engine,
    /// How a thread or a program begins.
    Start,
    /// A kernel that bears an operator's name.
    Operator,
    /// Anything else; so are frames without a name.
    Other,
}

use Role::*;

impl Role {
    fn is_hidden(self) -> bool {
        !matches!(self, Operator | Other)
    }
}

/// How a pattern matches a name.
#[derive(Clone, Copy)]
enum Name {
    Is(&'static str),
    Begins(&'static str),
    /// Anywhere before the parameters.
    Has(&'static str),
}

use Name::*;

/// The rules; the first that matches counts.
const SYMBOLS: [(Name, Role); 50] = [
    // A user's extension module begins there.
    (Begins("PyInit_"), Other),
    (Begins("_PyEval_"), Evaluator),
    (Begins("PyEval_"), Evaluator),
    (Begins("_PyObject_"), Evaluator),
    (Begins("PyObject_"), Evaluator),
    (Begins("_PyFunction_"), Evaluator),
    (Begins("PyNumber_"), Evaluator),
    (Begins("PySequence_"), Evaluator),
    (Begins("PyVectorcall_"), Evaluator),
    (Begins("_PyVectorcall_"), Evaluator),
    (Begins("_TAIL_CALL_"), Evaluator),
    (Begins("at::_ops::"), Called),
    (Begins("c10::Dispatcher::"), Dispatcher),
    (Begins("c10::KernelFunction::"), Dispatcher),
    (Begins("c10::BoxedKernel::"), Dispatcher),
    (Begins("c10::OperatorHandle::"), Dispatcher),
    (Begins("c10::TypedOperatorHandle<"), Dispatcher),
    (Has("c10::impl::wrap_kernel_functor_unboxed_<"), Dispatcher),
    (Has("c10::impl::make_boxed_from_unboxed_functor<"), Dispatcher),
    (Has("c10::impl::call_functor_with_args_from_stack"), Dispatcher),
    (Has("c10::impl::BoxedKernelWrapper<"), Dispatcher),
    (Begins("torch::autograd::VariableType::"), Dispatcher),
    (Begins("torch::ADInplaceOrView::"), Dispatcher),
    (Begins("torch::TraceType::"), Dispatcher),
    (Has("(anonymous namespace)::wrapper_"), Dispatcher),
    (Begins("torch::autograd::THPVariable_"), Binding),
    (Has("torch::autograd::TypeError_to_NotImplemented_<"), Binding),
    (Begins("torch::autograd::dispatch_to("), Binding),
    (Has("pybind11::cpp_function::"), Binding),
    (Begins("at::detail::empty_"), Factory),
    (Begins("at::native::empty_"), Factory),
    (Begins("at::empty_"), Factory),
    (Begins("at::empty("), Factory),
    (Has("(anonymous namespace)::create_out("), Factory),
    (Has("::set_output_raw_strided("), Factory),
    (Has("::set_output_strided("), Factory),
    (Begins("at::TensorIteratorBase::"), Factory),
    (Has("CachingHostAllocator"), Allocator),
    (Begins("torch::autograd::Engine::"), Engine),
    (Begins("torch::autograd::python::PythonEngine::"), Engine),
    (Begins("torch::autograd::Node::operator()"), Engine),
    (Has("_apply_functional("), Engine),
    (Begins("at::native::"), Operator),
    (Begins("at::meta::structured_"), Operator),
    (Is("_start"), Start),
    (Begins("__libc_start_"), Start),
    (Is("start_thread"), Start),
    (Begins("__clone"), Start),
    (Is("clone3"), Start),
    (Is("execute_native_thread_routine"), Start),
];

/// Object files whose every function, named or not, is the interpreter's machinery: how their names begin.
const INTERPRETERS: [&str; 5] = ["libpython3", "python3.", "python3-", "_ctypes.", "libffi."];

/// Object files whose every function, named or not, is the caching allocator's: how their names begin.
const ALLOCATORS: [&str; 2] = ["libc10.so", "libc10_cuda.so"];

/// Returns, for each frame of a stack, innermost first, whether to hide it. The innermost is never hidden, and of the native
/// frames between two Python frames at least one that names the operator is left, if any does.
pub fn hidden(frames: &[NamedFrame]) -> Vec<bool> {
    let roles: Vec<Role> = frames.iter().map(role).collect();
    let mut hidden: Vec<bool> = roles.iter().map(|role| role.is_hidden()).collect();
    let mut begin = 0;
    while begin < frames.len() {
        let native = frames[begin..].iter().take_while(|f| f.kind == FrameKind::Native).count();
        let of = &roles[begin..begin + native];
        if !of.contains(&Operator) {
            // The outermost is what was asked for; what it is made of lies further in.
            let name =
                of.iter().rposition(|p| *p == Called).or_else(|| of.iter().rposition(|p| *p == Binding));
            if let Some(at) = name {
                hidden[begin + at] = false;
            }
        }
        begin += native.max(1);
    }
    if let Some(innermost) = hidden.first_mut() {
        *innermost = false;
    }
    hidden
}

/// Returns the innermost native frame that says what the memory is for: an operator, or what called the allocator.
pub fn requester(frames: &[NamedFrame]) -> Option<&NamedFrame> {
    let says = |frame: &NamedFrame| {
        frame.kind == FrameKind::Native && frame.has_symbol() && !matches!(role(frame), Factory | Allocator)
    };
    frames.iter().zip(hidden(frames)).find(|(frame, hidden)| !hidden && says(frame)).map(|(frame, _)| frame)
}

fn role(frame: &NamedFrame) -> Role {
    let module = frame.module.as_deref().unwrap_or("");
    let base = module.rsplit('/').next().unwrap_or(module);
    if ALLOCATORS.iter().any(|start| base.starts_with(start)) {
        return Allocator;
    }
    let of_interpreter = base == "python3" || INTERPRETERS.iter().any(|start| base.starts_with(start));
    let of_module = if of_interpreter { Evaluator } else { Other };
    if !frame.has_symbol() {
        return of_module;
    }
    // Inlined functions of other libraries stand in the module they were built into: names say more than modules.
    let name = frame.function.as_str();
    let matches = |pattern: Name| match pattern {
        Is(text) => name == text,
        Begins(text) => name.starts_with(text),
        Has(text) => name.contains(text),
    };
    SYMBOLS.iter().find(|(pattern, _)| matches(*pattern)).map_or(of_module, |(_, role)| *role)
}

/// Returns a function's name for people: without its parameters, template arguments and result.
pub fn plain(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let (mut plain, mut depth, mut rest) = (String::new(), 0u32, name.as_str());
    while let Some(c) = rest.chars().next() {
        if depth == 0
            && let Some(behind) = rest.strip_prefix("operator")
            && let Some(end) =
                behind.find('(').filter(|_| !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        {
            // `operator()(int)`, `operator<(A, B)`
            let sign = if behind.starts_with("()") { "()" } else { &behind[..end] };
            plain.push_str("operator");
            plain.push_str(sign);
            break;
        }
        match c {
            // A Rust name begins with the type it is of.
            '<' if plain.is_empty() => return name,
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            // What stood before was the type of the result.
            ' ' if depth == 0 => plain.clear(),
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    if plain.is_empty() { name } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(module: &str, function: &str) -> NamedFrame {
        NamedFrame {
            kind: FrameKind::Native,
            file: module.into(),
            line: None,
            function: function.into(),
            module: Some(module.into()),
        }
    }

    fn python(function: &str) -> NamedFrame {
        NamedFrame { kind: FrameKind::Python, module: None, ..native("train.py", function) }
    }

    fn shown(frames: &[NamedFrame]) -> Vec<&str> {
        let hidden = hidden(frames);
        frames.iter().zip(hidden).filter(|(_, hidden)| !hidden).map(|(f, _)| f.function.as_str()).collect()
    }

    const CPU: &str = "/v/torch/lib/libtorch_cpu.so";
    const CUDA: &str = "/v/torch/lib/libtorch_cuda.so";
    const PYTHON: &str = "/v/lib/libpython3.11.so.1.0";

    #[test]
    fn from_python_over_the_operator_to_the_allocator() {
        let frames = [
            native(
                "/v/torch/lib/libc10_cuda.so",
                "c10::cuda::CUDACachingAllocator::Native::malloc(void**, int)",
            ),
            native(CPU, "at::detail::empty_generic(c10::ArrayRef<long>)"),
            native(CUDA, "at::native::empty_cuda(c10::ArrayRef<long>)"),
            native(CPU, "at::_ops::empty_strided::call(c10::ArrayRef<c10::SymInt>)"),
            native(CPU, "at::native::_to_copy(at::Tensor const&)"),
            native(CPU, "at::Tensor c10::impl::wrap_kernel_functor_unboxed_<F, at::Tensor ()>::call(int)"),
            native(CPU, "torch::autograd::VariableType::(anonymous namespace)::_to_copy(at::Tensor const&)"),
            native(CPU, "at::_ops::_to_copy::call(at::Tensor const&)"),
            native(
                "/v/libtorch_python.so",
                "torch::autograd::THPVariable_cuda(_object*, _object*, _object*)",
            ),
            native(PYTHON, "method_vectorcall_VARARGS_KEYWORDS"),
            python("main"),
            native(PYTHON, "_PyEval_Vector"),
            native(PYTHON, "pymain_run_python"),
            native("/v/bin/python3.11", "python3.11+0x647d97"),
            native("/lib/libc.so.6", "libc.so.6+0x2724a"),
            native("/v/bin/python3.11", "_start"),
        ];
        assert_eq!(
            shown(&frames),
            [
                "c10::cuda::CUDACachingAllocator::Native::malloc(void**, int)",
                "at::native::_to_copy(at::Tensor const&)",
                "main",
                "libc.so.6+0x2724a",
            ]
        );
    }

    #[test]
    fn an_operator_whose_kernel_does_not_name_it_stays_by_its_call() {
        let dispatched = [
            native("/v/libc10_cuda.so", "libc10_cuda.so+0x1b9ba"),
            native(CPU, "at::TensorIteratorBase::build(at::TensorIteratorConfig&)"),
            native(CPU, "at::_ops::empty_memory_format::call(int)"),
            native(CUDA, "at::(anonymous namespace)::wrapper_CUDA_mul_Tensor(at::Tensor const&)"),
            native(CPU, "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)"),
            native("/v/libtorch_python.so", "torch::autograd::THPVariable_mul(_object*)"),
            python("main"),
        ];
        assert_eq!(
            shown(&dispatched),
            [
                "libc10_cuda.so+0x1b9ba",
                "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)",
                "main"
            ]
        );
        let bound = [
            native("/v/libc10_cuda.so", "libc10_cuda.so+0x1b9ba"),
            native(CPU, "at::detail::empty_cuda(int)"),
            native("/v/libtorch_python.so", "torch::autograd::THPVariable_new(_object*)"),
            python("main"),
        ];
        assert_eq!(
            shown(&bound),
            ["libc10_cuda.so+0x1b9ba", "torch::autograd::THPVariable_new(_object*)", "main"]
        );
    }

    #[test]
    fn the_allocator_is_one_frame_with_names_or_without() {
        let c10 = |function| native("/v/libc10_cuda.so", function);
        let frames = [
            c10("libc10_cuda.so+0x20a27"),
            c10("libc10_cuda.so+0x4df7a"),
            c10("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)"),
            native(CPU, "at::detail::empty_generic(c10::ArrayRef<long>)"),
            native(CPU, "at::meta::structured_nll_loss_forward::meta(at::Tensor const&)"),
            native(CPU, "at::native::nll_loss_symint(at::Tensor const&)"),
        ];
        let operators = [
            "at::meta::structured_nll_loss_forward::meta(at::Tensor const&)",
            "at::native::nll_loss_symint(at::Tensor const&)",
        ];
        assert_eq!(shown(&frames)[0], "libc10_cuda.so+0x20a27");
        assert_eq!(shown(&frames)[1..], operators);
        assert_eq!(requester(&frames).map(|f| f.function.as_str()), Some(operators[0]));
        // By the name of what was called, where no kernel is named; not by a frame that has no name.
        let called = [frames[0].clone(), frames[3].clone(), native(CPU, "at::_ops::mul_Tensor::call(int)")];
        assert_eq!(requester(&called).map(|f| f.function.as_str()), Some("at::_ops::mul_Tensor::call(int)"));
        assert_eq!(requester(&[frames[0].clone(), native(CPU, "libtorch_cpu.so+0x1")]), None);
    }

    #[test]
    fn what_has_no_name_or_is_the_users_own_stays() {
        let frames = [
            native("/home/u/pool.so", "pool_take"),
            native("/home/u/pool.so", "pool.so+0xfd9c3"),
            NamedFrame { module: None, ..native("", "<the stack goes on>") },
            NamedFrame { module: None, ..native("", "0x7f0011223344") },
            native("/home/u/ext.so", "my_ext::forward(at::Tensor)"),
            native("/home/u/ext.so", "PyInit_ext"),
            native("/home/u/a.out", "main"),
        ];
        assert_eq!(shown(&frames).len(), frames.len());
        // Even where it alone is left.
        let one = [native(PYTHON, "PyObject_Vectorcall")];
        assert_eq!(shown(&one), ["PyObject_Vectorcall"]);
        assert!(hidden(&[]).is_empty());
    }

    #[test]
    fn autograds_engine_around_a_node() {
        let frames = [
            native("/v/libc10_cuda.so", "libc10_cuda.so+0x1b9ba"),
            native(CPU, "at::_ops::mm::call(at::Tensor const&)"),
            native(
                CPU,
                "torch::autograd::generated::MmBackward0_apply_functional(std::vector<at::Tensor>&&)",
            ),
            native(CPU, "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"),
            native(CPU, "torch::autograd::Node::operator()(std::vector<at::Tensor>&&)"),
            native(
                CPU,
                "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
            ),
            native("/lib/libstdc++.so.6", "execute_native_thread_routine"),
        ];
        assert_eq!(
            shown(&frames)[1..],
            [
                "at::_ops::mm::call(at::Tensor const&)",
                "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"
            ]
        );
    }

    #[test]
    fn names_for_people() {
        for (name, expected) in [
            ("at::native::_to_copy(at::Tensor const&, std::optional<bool>)", "at::native::_to_copy"),
            ("void at::cuda::blas::gemm<float, float>(char, long)", "at::cuda::blas::gemm"),
            ("at::(anonymous namespace)::create_out(int)", "at::create_out"),
            ("torch::autograd::Node::operator()(std::vector<int>&&)", "torch::autograd::Node::operator()"),
            ("bool a::operator<(a::B const&)", "a::operator<"),
            ("std::map<int, int>::operator[](int)", "std::map::operator[]"),
            ("operators::run(int)", "operators::run"),
            ("main", "main"),
            ("<core::fmt::Foo as Bar>::f", "<core::fmt::Foo as Bar>::f"),
            ("<the stack goes on>", "<the stack goes on>"),
            ("libc.so.6+0x2724a", "libc.so.6+0x2724a"),
            ("(anonymous namespace)::f(int)", "f"),
            ("", ""),
        ] {
            assert_eq!(plain(name), expected);
        }
    }
}
