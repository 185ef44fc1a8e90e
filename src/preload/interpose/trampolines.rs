//! The doors: how a call of the program's comes to us. Naked tail-jumps in, nothing else.
//!
//! glibc decides by the return address who is asking (`RTLD_NEXT`, `RTLD_DEFAULT`, a library's search path), so none of
//! ours may stand on the stack when the loader's own function runs: a door looks, and jumps. The exported CUDA symbols
//! jump too: every argument stays where it is, and the return address tells whose scope the real function is to be taken
//! from.
//!
//! Nothing else is decided here: `lookup` says what a look-up finds, `route` where a call goes.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::hooks::driver_queries;
use crate::interpose::dispatch;
use crate::interpose::got_patch;
use crate::interpose::hook_table;
use crate::interpose::link_map;
use crate::interpose::link_map::Version;
use crate::interpose::symbol_lookup;
use crate::lifecycle;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the doors are written for x86-64");

/// The type of `dlsym`.
pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;
type Dlclose = unsafe extern "C" fn(*mut c_void) -> i32;
type Dlerror = unsafe extern "C" fn() -> *mut c_char;

/// A function of the loader's, found by the constructor (or by the first call, should one come earlier).
#[repr(transparent)]
pub struct Found(AtomicPtr<c_void>);

impl Found {
    const fn new() -> Found {
        Found(AtomicPtr::new(std::ptr::null_mut()))
    }

    fn get(&self, find: impl FnOnce() -> Option<*mut c_void>) -> *mut c_void {
        let known = self.0.load(Acquire);
        if !known.is_null() {
            return known;
        }
        link_map::orient();
        let found = find().unwrap_or(std::ptr::null_mut());
        self.0.store(found, Release);
        found
    }

    /// The next in line behind us, as every call is handed on: the C library's, or that of a preload after us.
    pub fn next(&self, name: &CStr) -> *mut c_void {
        self.get(|| link_map::started_with().skip_while(|o| !o.is_self()).skip(1).find_map(|o| o.find(name)))
    }

    /// The C library's own: what we ask ourselves no other preload is to see. Versions begin with x86-64's first glibc.
    pub fn innermost(&self, name: &CStr) -> *mut c_void {
        self.get(|| link_map::chain().find_map(|o| o.find_exactly(name, c"GLIBC_2.2.5")))
    }
}

pub static DLSYM: Found = Found::new();
pub static DLVSYM: Found = Found::new();
pub static DLCLOSE: Found = Found::new();
pub static DLERROR: Found = Found::new();
pub static DLOPEN: Found = Found::new();
pub static DLMOPEN: Found = Found::new();
pub static OWN_DLSYM: Found = Found::new();
pub static OWN_DLVSYM: Found = Found::new();

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    // Nothing else: a process that never touches CUDA pays for a few look-ups.
    extern "C" fn constructor() {
        DLSYM.next(c"dlsym");
        DLOPEN.next(c"dlopen");
    }
    constructor
};

/// The C library's own `dlsym`, for our own look-ups.
pub fn real_dlsym() -> Option<Dlsym> {
    let real = OWN_DLSYM.innermost(c"dlsym");
    // SAFETY: not null, and the address of `dlsym`.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real) })
}

/// What lies behind us in the global scope under that name.
pub fn ask_behind_us(symbol: &CStr, version: Version) -> Option<*mut c_void> {
    let found = match version {
        Version::Any => {
            let dlsym = real_dlsym()?;
            // SAFETY: a C string; called from this library, so it is ours that RTLD_NEXT skips.
            unsafe { dlsym(libc::RTLD_NEXT, symbol.as_ptr()) }
        }
        Version::Linked(version) | Version::Asked(version) => {
            let dlvsym = OWN_DLVSYM.innermost(c"dlvsym");
            if dlvsym.is_null() {
                return None;
            }
            // SAFETY: the address of `dlvsym`, two C strings; as above.
            unsafe {
                let dlvsym: Dlvsym = std::mem::transmute(dlvsym);
                dlvsym(libc::RTLD_NEXT, symbol.as_ptr(), version.as_ptr())
            }
        }
    };
    // Also keeps the call from being the last thing here: the return address must be one of ours.
    std::hint::black_box(found);
    (!found.is_null()).then_some(found)
}

/// What a door is to do, as two registers (rax, rdx): return the value, or jump.
#[repr(C)]
pub struct Answer {
    value: *const c_void,
    jump: *const c_void,
}

impl Answer {
    pub fn value(value: *const c_void) -> Answer {
        Answer { value, jump: std::ptr::null() }
    }

    pub fn jump(to: *const c_void) -> Answer {
        Answer { value: std::ptr::null(), jump: to }
    }
}

/// `dlsym`, as every object of the process finds it.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlsym"))]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, qword ptr [rsp + 24]",
        "call {filter}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 2f",
        "ret",
        // A failing look-up goes on to `dlvsym`, which takes one argument more.
        "2: mov r11, rdx",
        "lea rdx, [rip + {nowhere}]",
        "jmp r11",
        filter = sym symbol_lookup::filter,
        nowhere = sym NOWHERE,
    )
}

/// `dlvsym`, likewise.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlvsym"))]
pub unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _symbol: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, qword ptr [rsp + 24]",
        "call {filter}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jne 2f",
        "ret",
        "2: jmp r11",
        filter = sym symbol_lookup::versioned_filter,
    )
}

/// The version of a look-up that is to fail, with the loader's own words about whom it failed for; none of ours fits it.
static NOWHERE: [u8; 10] = *b"leaktrace\0";
const NOWHERE_SAID: &[u8] = b", version leaktrace";

/// `dlerror`: where a look-up failed that would have found an export of ours, the loader's words are about a version that
/// nobody asked for. What is left after it is taken off is what the same look-up gives without us.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlerror"))]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    let real = DLERROR.next(c"dlerror");
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the next `dlerror`; it gives null or a C string that is the calling thread's to change until it asks again,
    // on the heap where it names a symbol.
    unsafe {
        let text = std::mem::transmute::<*mut c_void, Dlerror>(real)();
        if !text.is_null()
            && let said = CStr::from_ptr(text).to_bytes()
            && said.ends_with(NOWHERE_SAID)
        {
            text.add(said.len() - NOWHERE_SAID.len()).write(0);
        }
        text
    }
}

/// `dlopen`: costs one test, unless the library's own scope is to come before ours.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlopen"))]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _mode: i32) -> *mut c_void {
    std::arch::naked_asm!(
        "test esi, {deep}",
        "jne 2f",
        "mov rax, qword ptr [rip + {next}@GOTPCREL]",
        "mov rax, qword ptr [rax]",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2: push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {opening}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 3f",
        "ret",
        "3: jmp rdx",
        deep = const libc::RTLD_DEEPBIND,
        next = sym DLOPEN,
        opening = sym opening,
    )
}

/// A library of its own scope. Its constructors run before we can lead its calls here: what those allocate is not seen.
unsafe extern "C" fn opening(file: *const c_char, mode: i32) -> Answer {
    let real = DLOPEN.next(c"dlopen");
    if real.is_null() || file.is_null() || mode & libc::RTLD_DEEPBIND == 0 || mode & libc::RTLD_NOLOAD != 0 {
        return Answer::jump(real);
    }
    got_patch::passed();
    // SAFETY: not null, so a C string of the caller's.
    let path = unsafe { CStr::from_ptr(file) };
    let bytes = path.to_bytes();
    if !bytes.contains(&b'/') || bytes.contains(&b'$') {
        // The loader searches on behalf of the caller.
        got_patch::will_open(path);
        return Answer::jump(real);
    }
    // For a path the loader does not ask who is calling: it may as well be us.
    let last = link_map::chain().last();
    // SAFETY: the next `dlopen`, the caller's own arguments.
    let handle = unsafe { std::mem::transmute::<*mut c_void, Dlopen>(real)(file, mode) };
    // SAFETY: a handle is the object's link map (dlinfo's RTLD_DI_LINKMAP says the same).
    if let Some(root) = unsafe { handle.cast::<link_map::LinkMap>().as_ref() } {
        got_patch::opened(root, last);
    }
    Answer::value(handle)
}

/// `dlmopen`: in a namespace of its own there is nothing of ours.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlmopen"))]
pub unsafe extern "C" fn dlmopen(_namespace: i64, _file: *const c_char, _mode: i32) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {opening}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        opening = sym opening_elsewhere,
    )
}

unsafe extern "C" fn opening_elsewhere(namespace: i64, file: *const c_char, mode: i32) -> *const c_void {
    if !file.is_null() && (namespace != 0 || mode & libc::RTLD_DEEPBIND != 0) && mode & libc::RTLD_NOLOAD == 0
    {
        // SAFETY: not null, so a C string of the caller's.
        got_patch::elsewhere(unsafe { CStr::from_ptr(file) });
    }
    DLMOPEN.next(c"dlmopen")
}

/// `dlclose`, so that stacks never name a library that is gone for what now lies at its addresses. Unlike `dlopen` and
/// `dlsym` it does not ask who calls, so it may simply be called.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlclose"))]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> i32 {
    let real = DLCLOSE.next(c"dlclose");
    if real.is_null() {
        return -1;
    }
    got_patch::passed();
    let before = link_map::chain().count();
    // SAFETY: the next `dlclose`, the caller's own handle.
    let status = unsafe { std::mem::transmute::<*mut c_void, Dlclose>(real)(handle) };
    if link_map::chain().count() < before {
        got_patch::forget_unloaded();
        driver_queries::forget_unloaded();
        hook_table::forget_unloaded();
        dispatch::forget();
    }
    lifecycle::unloaded();
    status
}

/// The body of a naked function that asks `$target` where to go and goes there, with every argument as it came. `$setup`
/// loads what the target is to be told; the return address stands at `rsp + 56`.
macro_rules! tail_jump {
    ($target:path $(, $setup:literal)* $(; row = $row:expr)?) => {
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            $($setup,)*
            "call {target}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp r11",
            target = sym $target,
            $(row = const $row,)?
        )
    };
}
pub(crate) use tail_jump;

/// Makes the exported symbol of a row: finds the hook for this caller, then jumps there.
macro_rules! export {
    ($id:ident) => {
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, unsafe(export_name = concat!("unhooked_", stringify!($id))))]
        unsafe extern "C" fn $id() {
            $crate::interpose::trampolines::tail_jump!(
                $crate::interpose::dispatch::route, "mov rdi, qword ptr [rsp + 56]", "mov esi, {row}";
                row = $crate::interpose::hook_table::Row::$id as usize + 1
            )
        }
    };
}
pub(crate) use export;
