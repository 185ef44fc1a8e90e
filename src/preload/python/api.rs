//! The functions and types of CPython that we use, found by name. Knows their signatures, not when they may
//! be called.
//!
//! They are looked up where the interpreter is visible: in the program's own scope, or in a libpython that
//! was loaded `RTLD_LOCAL`.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::loader::dlsym::Handle;

/// A Python object, or an internal structure of the interpreter. Opaque.
pub type Object = *mut c_void;

/// `PyMethodDef`.
#[repr(C)]
pub struct Method {
    pub name: *const c_char,
    /// Its type is what `flags` says.
    function: *const c_void,
    pub flags: c_int,
    pub doc: *const c_char,
}

// SAFETY: read-only, and its pointers lead to statics.
unsafe impl Sync for Method {}

/// `METH_VARARGS` and `METH_KEYWORDS`.
const VARARGS: c_int = 1;
const KEYWORDS: c_int = 2;

impl Method {
    pub const fn new(
        name: &'static CStr,
        function: unsafe extern "C" fn(Object, Object) -> Object,
    ) -> Method {
        Method { name: name.as_ptr(), function: function as _, flags: VARARGS, doc: std::ptr::null() }
    }

    pub const fn with_keywords(
        name: &'static CStr,
        function: unsafe extern "C" fn(Object, Object, Object) -> Object,
    ) -> Method {
        Method {
            name: name.as_ptr(),
            function: function as _,
            flags: VARARGS | KEYWORDS,
            doc: std::ptr::null(),
        }
    }
}

/// `visitproc`.
pub type Visit = unsafe extern "C" fn(Object, *mut c_void) -> c_int;
/// `traverseproc`.
pub type Traverse = unsafe extern "C" fn(Object, Visit, *mut c_void) -> c_int;
/// `inquiry`.
pub type Inquiry = unsafe extern "C" fn(Object) -> c_int;

macro_rules! table {
    ($(#[$meta:meta])* $table:ident {
        $($(#[$doc:meta])* $name:ident $(| $other:ident)*: fn($($arg:ty),*) $(-> $ret:ty)?;)+
    }) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the names of the C API")]
        pub struct $table { $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)+ }

        impl $table {
            /// Looks the functions up; `None` if one is missing.
            fn find(scope: Handle) -> Option<$table> {
                Some($table {
                    $($name: {
                        let names = [concat!(stringify!($name), "\0") $(, concat!(stringify!($other), "\0"))*];
                        // SAFETY: each of these names has the signature given in the table.
                        names.iter().find_map(|name| unsafe {
                            scope.function(CStr::from_bytes_with_nul(name.as_bytes()).ok()?)
                        })?
                    },)+
                })
            }
        }
    };
}

table! {
    /// What is called of any interpreter. All of it is in the stable ABI but the two that ask who holds the
    /// GIL.
    Functions {
        Py_IsInitialized: fn() -> c_int;
        Py_IsFinalizing | _Py_IsFinalizing: fn() -> c_int;
        Py_AddPendingCall: fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
        PyGILState_Ensure: fn() -> c_int;
        PyGILState_Release: fn(c_int);
        PyGILState_GetThisThreadState: fn() -> Object;
        PyEval_SaveThread: fn() -> Object;
        PyEval_RestoreThread: fn(Object);
        PyErr_Fetch: fn(*mut Object, *mut Object, *mut Object);
        PyErr_Restore: fn(Object, Object, Object);
        PyErr_Clear: fn();
        PyImport_GetModuleDict: fn() -> Object;
        PyImport_ImportModule: fn(*const c_char) -> Object;
        PyDict_GetItemString: fn(Object, *const c_char) -> Object;
        PyDict_GetItem: fn(Object, Object) -> Object;
        PyObject_SetItem: fn(Object, Object, Object) -> c_int;
        PyObject_SetAttrString: fn(Object, *const c_char, Object) -> c_int;
        PyObject_GetAttrString: fn(Object, *const c_char) -> Object;
        PyObject_CallFunctionObjArgs: fn(Object, Object, Object) -> Object;
        PyObject_IsTrue: fn(Object) -> c_int;
        PyTuple_GetItem: fn(Object, isize) -> Object;
        PyCFunction_NewEx: fn(*const Method, Object, Object) -> Object;
        PyModule_New: fn(*const c_char) -> Object;
        PyCapsule_GetPointer: fn(Object, *const c_char) -> *mut c_void;
        PyUnicode_InternFromString: fn(*const c_char) -> Object;
        PyLong_AsUnsignedLongLong: fn(Object) -> u64;
        PyWeakref_NewRef: fn(Object, Object) -> Object;
        Py_IncRef: fn(Object);
        Py_DecRef: fn(Object);
    }
}

table! {
    /// What a search through the interpreter's objects calls: functions that look and change nothing.
    ObjectFunctions {
        /// The thread state that is attached now: the GIL's holder, or this thread's own.
        PyThreadState_GetUnchecked | _PyThreadState_UncheckedGet: fn() -> Object;
        PyInterpreterState_Get | _PyInterpreterState_Get: fn() -> Object;
        PyInterpreterState_Main: fn() -> Object;
        PyInterpreterState_ThreadHead: fn(Object) -> Object;
        PyThreadState_Next: fn(Object) -> Object;
        PyDict_Next: fn(Object, *mut isize, *mut Object, *mut Object) -> c_int;
    }
}

/// Types by their symbols.
const TYPES: [&CStr; 13] = [
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

/// The addresses of types.
#[derive(Clone, Copy)]
pub struct Types([(u64, &'static CStr); TYPES.len()]);

impl Types {
    fn find(scope: Handle) -> Option<Types> {
        let mut types = [(0, c""); TYPES.len()];
        for (slot, name) in types.iter_mut().zip(TYPES) {
            *slot = (scope.symbol(name)?.addr() as u64, name);
        }
        Some(Types(types))
    }

    /// Returns the address of a type; 0 of one that is not in the list.
    pub fn address(&self, name: &CStr) -> u64 {
        self.0.iter().find(|(_, known)| *known == name).map_or(0, |(address, _)| *address)
    }
}

/// What a search through the interpreter's objects needs.
pub struct ObjectApi {
    pub functions: ObjectFunctions,
    /// `PyUnstable_GC_VisitObjects`, from 3.12 on.
    pub visit_objects: Option<unsafe extern "C" fn(Visit, *mut c_void)>,
    /// `PyGC_IsEnabled`, from 3.10 on.
    pub collector_is_enabled: Option<unsafe extern "C" fn() -> c_int>,
    pub types: Types,
    /// The address of `_PyRuntime`.
    pub runtime: u64,
}

/// The C API of the interpreter in this process.
pub struct Api {
    pub functions: Functions,
    /// `Py_None`.
    none: Object,
    /// `None`: its objects cannot be searched.
    pub objects: Option<ObjectApi>,
}

// SAFETY: addresses of functions and of immortal objects; what may be done with them when is the callers'
// care.
unsafe impl Send for Api {}
// SAFETY: as for `Send`.
unsafe impl Sync for Api {}

impl Api {
    /// Looks everything up. Not for the inside of a hook.
    pub fn find(scope: Handle) -> Option<Api> {
        let objects = || {
            Some(ObjectApi {
                functions: ObjectFunctions::find(scope)?,
                // SAFETY: the signature that its documentation gives.
                visit_objects: unsafe { scope.function(c"PyUnstable_GC_VisitObjects") },
                // SAFETY: as before.
                collector_is_enabled: unsafe { scope.function(c"PyGC_IsEnabled") },
                types: Types::find(scope)?,
                runtime: scope.symbol(c"_PyRuntime")?.addr() as u64,
            })
        };
        let none = scope.symbol(c"_Py_NoneStruct")?;
        Some(Api { functions: Functions::find(scope)?, none, objects: objects() })
    }

    /// Returns a new reference to `None`.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn none(&self) -> Object {
        // SAFETY: the caller's word; `None` lives as long as the interpreter.
        unsafe { (self.functions.Py_IncRef)(self.none) };
        self.none
    }

    /// Returns where `None` lies.
    pub fn none_address(&self) -> u64 {
        self.none.expose_provenance() as u64
    }

    /// Gives up a reference, which may be null.
    ///
    /// # Safety
    /// The GIL is held, and the reference is ours.
    pub unsafe fn release(&self, object: Object) {
        if !object.is_null() {
            // SAFETY: the caller's word.
            unsafe { (self.functions.Py_DecRef)(object) };
        }
    }

    /// Returns a module that was imported, which is not the caller's to give up; null if it was not. No code of the program's runs,
    /// as it may in an import.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn imported(&self, module: &CStr) -> Object {
        // SAFETY: the caller's word; what is not there is no exception.
        unsafe {
            (self.functions.PyDict_GetItemString)((self.functions.PyImport_GetModuleDict)(), module.as_ptr())
        }
    }

    /// Calls `module.name(method)`, as `atexit.register` wants it; true if that succeeded. No exception stays
    /// set.
    ///
    /// # Safety
    /// The GIL is held; `module` is null or an object.
    pub unsafe fn register(&self, module: Object, name: &CStr, method: &'static Method) -> bool {
        // SAFETY: the caller's word; the result is given up at once.
        unsafe {
            let result = self.result_of_registering(module, name, method);
            self.release(result);
            !result.is_null()
        }
    }

    /// Does the same, and returns what the call did, which is the caller's to give up; null if it failed.
    ///
    /// # Safety
    /// As for [`Api::register`].
    pub unsafe fn result_of_registering(
        &self,
        module: Object,
        name: &CStr,
        method: &'static Method,
    ) -> Object {
        if module.is_null() {
            return std::ptr::null_mut();
        }
        let python = &self.functions;
        // SAFETY: the caller's word; every reference made here is given up here.
        unsafe {
            let function = (python.PyObject_GetAttrString)(module, name.as_ptr());
            let ours = (python.PyCFunction_NewEx)(method, std::ptr::null_mut(), std::ptr::null_mut());
            let mut result = std::ptr::null_mut();
            if !function.is_null() && !ours.is_null() {
                result = (python.PyObject_CallFunctionObjArgs)(function, ours, std::ptr::null_mut());
            }
            self.release(ours);
            self.release(function);
            (python.PyErr_Clear)();
            result
        }
    }
}
