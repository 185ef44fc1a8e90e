//! The type of the exception that ends the program: the interpreter leaves it in `sys.last_type` when it has printed one
//! that nothing caught. Knows no recording.

use crate::python::interpreter::{self, Interpreter};
use crate::python::memory::read;
use crate::python::strings;

/// Returns the name of the type of the last exception that nothing caught, if there was one.
///
/// # Safety
/// The GIL is held, and no exception is set.
pub unsafe fn exception(python: &Interpreter) -> Option<String> {
    let cpython = interpreter::cpython()?;
    let functions = &python.api.functions;
    // SAFETY: the caller's word. A missing attribute is an exception that is cleared; every reference made here is given up here.
    unsafe {
        let module = python.api.imported(c"sys");
        let attribute = |object: crate::python::api::Object, name: &std::ffi::CStr| {
            if object.is_null() { object } else { (functions.PyObject_GetAttrString)(object, name.as_ptr()) }
        };
        let kind = attribute(module, c"last_type");
        let name = attribute(kind, c"__name__");
        let is_text =
            !name.is_null() && read::<usize>(name.cast(), cpython.layout.object_type()) == cpython.str_type;
        let text = is_text.then(|| strings::text(&cpython.layout, name.cast()));
        [name, kind].into_iter().for_each(|object| python.api.release(object));
        (functions.PyErr_Clear)();
        text.filter(|name| !name.is_empty())
    }
}
