//! The interpreter's functions that we call, all of its stable ABI, found by name. Missing one: no Python here.

use std::ffi::{c_char, c_int, c_void};

use once_cell::race::OnceBox;

use crate::interpose::trampolines;

/// A Python object. Opaque.
pub type Object = *mut c_void;

/// `PyMethodDef`
#[repr(C)]
pub struct Method {
    pub name: *const c_char,
    pub function: unsafe extern "C" fn(Object, Object) -> Object,
    pub flags: c_int,
    pub doc: *const c_char,
}
// SAFETY: read-only, and its pointers lead to statics.
unsafe impl Sync for Method {}

macro_rules! functions {
    ($($(#[$m:meta])* $name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)+) => {
        /// The functions, by their own names.
        #[allow(non_snake_case, reason = "the names of the C API")]
        pub struct Api {
            $($(#[$m])* pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)+
            /// `None`, the object.
            pub none: Object,
        }

        fn find() -> Option<Api> {
            let dlsym = trampolines::real_dlsym()?;
            // SAFETY: asks for documented functions by name; each has the signature given here.
            unsafe {
                Some(Api {
                    $($name: {
                        let address = dlsym(libc::RTLD_DEFAULT, concat!(stringify!($name), "\0").as_ptr().cast());
                        if address.is_null() {
                            return None;
                        }
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(address)
                    },)+
                    none: {
                        let none = dlsym(libc::RTLD_DEFAULT, c"_Py_NoneStruct".as_ptr());
                        if none.is_null() {
                            return None;
                        }
                        none
                    },
                })
            }
        }
    };
}

functions! {
    Py_IsInitialized: fn() -> c_int;
    Py_AddPendingCall: fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
    PyGILState_Ensure: fn() -> c_int;
    PyGILState_Release: fn(c_int);
    PyErr_Fetch: fn(*mut Object, *mut Object, *mut Object);
    PyErr_Restore: fn(Object, Object, Object);
    PyErr_Clear: fn();
    PyImport_GetModuleDict: fn() -> Object;
    PyImport_ImportModule: fn(*const c_char) -> Object;
    PyDict_GetItemString: fn(Object, *const c_char) -> Object;
    PyObject_GetAttrString: fn(Object, *const c_char) -> Object;
    PyObject_CallFunctionObjArgs: fn(Object, Object, Object) -> Object;
    PyObject_IsTrue: fn(Object) -> c_int;
    PyTuple_GetItem: fn(Object, isize) -> Object;
    PyCFunction_NewEx: fn(*const Method, Object, Object) -> Object;
    Py_IncRef: fn(Object);
    Py_DecRef: fn(Object);
}

// SAFETY: addresses of functions and of one immortal object; what may be done with them when is the callers' care.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Looked up once: also that there is none.
static API: OnceBox<Option<Api>> = OnceBox::new();

/// Looks the functions up. Not for the inside of a hook.
pub fn arm() {
    API.get_or_init(|| Box::new(find()));
}

/// The functions, if there is an interpreter.
pub fn get() -> Option<&'static Api> {
    API.get()?.as_ref()
}
