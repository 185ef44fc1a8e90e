//! What is called of the interpreter: functions that look and change nothing.

use std::ffi::{CStr, c_int, c_void};

use once_cell::race::OnceBox;

use crate::interpose::trampolines;

pub type Visit = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
pub type Traverse = unsafe extern "C" fn(*mut c_void, Visit, *mut c_void) -> c_int;
pub type Question = unsafe extern "C" fn(*mut c_void) -> c_int;
type Get = unsafe extern "C" fn() -> *mut c_void;
type Next = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type DictNext = unsafe extern "C" fn(*mut c_void, *mut isize, *mut *mut c_void, *mut *mut c_void) -> c_int;
type VisitObjects = unsafe extern "C" fn(Visit, *mut c_void);

/// The functions, and the addresses of types.
pub struct Api {
    is_initialized: unsafe extern "C" fn() -> c_int,
    is_finalizing: unsafe extern "C" fn() -> c_int,
    this_thread: Get,
    /// The thread state that is attached now: the GIL's holder, or this thread's own.
    attached: Get,
    pub interpreter: Get,
    main_interpreter: Get,
    pub first_thread: Next,
    pub next_thread: Next,
    pub modules: Get,
    pub dict_next: DictNext,
    /// 3.12 and later.
    pub visit_objects: Option<VisitObjects>,
    /// The runtime's own structure.
    pub runtime: u64,
    pub types: [(u64, &'static CStr); TYPES.len()],
}

/// Types by their symbols.
pub const TYPES: [&CStr; 13] = [
    c"PyModule_Type",
    c"PyFunction_Type",
    c"PyMethod_Type",
    c"PyCell_Type",
    c"PyFrame_Type",
    c"PyGen_Type",
    c"PyCoro_Type",
    c"PyTraceBack_Type",
    c"PyCode_Type",
    c"PySet_Type",
    c"PyFrozenSet_Type",
    c"PyUnicode_Type",
    c"PyLong_Type",
];

static API: OnceBox<Option<Api>> = OnceBox::new();

/// Looks the functions up.
pub fn arm() {
    API.get_or_init(|| Box::new(find()));
}

pub fn get() -> Option<&'static Api> {
    API.get()?.as_ref()
}

fn find() -> Option<Api> {
    let dlsym = trampolines::real_dlsym()?;
    let symbol = |name: &CStr| {
        // SAFETY: a look-up by name.
        let address = unsafe { dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    let either = |names: [&CStr; 2]| names.into_iter().find_map(symbol);
    let mut types = [(0, c""); TYPES.len()];
    for (slot, name) in types.iter_mut().zip(TYPES) {
        *slot = (symbol(name)?.addr() as u64, name);
    }
    // SAFETY: documented functions (and one that every version exports under either name), each with its signature.
    unsafe {
        use std::mem::transmute as function;
        Some(Api {
            is_initialized: function::<*mut c_void, unsafe extern "C" fn() -> c_int>(symbol(
                c"Py_IsInitialized",
            )?),
            is_finalizing: function::<*mut c_void, unsafe extern "C" fn() -> c_int>(either([
                c"Py_IsFinalizing",
                c"_Py_IsFinalizing",
            ])?),
            this_thread: function::<*mut c_void, Get>(symbol(c"PyGILState_GetThisThreadState")?),
            attached: function::<*mut c_void, Get>(either([
                c"PyThreadState_GetUnchecked",
                c"_PyThreadState_UncheckedGet",
            ])?),
            interpreter: function::<*mut c_void, Get>(either([
                c"PyInterpreterState_Get",
                c"_PyInterpreterState_Get",
            ])?),
            main_interpreter: function::<*mut c_void, Get>(symbol(c"PyInterpreterState_Main")?),
            first_thread: function::<*mut c_void, Next>(symbol(c"PyInterpreterState_ThreadHead")?),
            next_thread: function::<*mut c_void, Next>(symbol(c"PyThreadState_Next")?),
            modules: function::<*mut c_void, Get>(symbol(c"PyImport_GetModuleDict")?),
            dict_next: function::<*mut c_void, DictNext>(symbol(c"PyDict_Next")?),
            visit_objects: symbol(c"PyUnstable_GC_VisitObjects")
                .map(|f| function::<*mut c_void, VisitObjects>(f)),
            runtime: symbol(c"_PyRuntime")?.addr() as u64,
            types,
        })
    }
}

impl Api {
    /// True if this very thread holds the GIL of the main interpreter, and that is not about to end.
    pub fn has_gil(&self) -> bool {
        // SAFETY: the first four only look, with the GIL or without; the interpreter is asked for with it only.
        unsafe {
            if (self.is_initialized)() == 0 || (self.is_finalizing)() != 0 {
                return false;
            }
            let mine = (self.this_thread)();
            !mine.is_null() && mine == (self.attached)() && (self.interpreter)() == (self.main_interpreter)()
        }
    }
}
