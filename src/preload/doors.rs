//! The doors: how a call of the program's comes to us. Naked tail-jumps in, nothing else.
//!
//! glibc decides by the return address who is asking (`RTLD_NEXT`, `RTLD_DEFAULT`), so our `dlsym` must not stand on the
//! stack when the real one runs: it looks, and jumps. The exported CUDA symbols jump too: every argument stays where it
//! is, and the return address tells whose scope the real function is to be taken from.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::{api, driver, elf, life};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the doors are written for x86-64");

/// The type of `dlsym`.
pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`, found by the constructor (or by the first call, should one come earlier).
pub static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    // Nothing else: a process that never touches CUDA pays for one look-up.
    extern "C" fn constructor() {
        find_real_dlsym();
    }
    constructor
};

fn find_real_dlsym() -> *mut c_void {
    let known = REAL_DLSYM.load(Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: documented; RTLD_NEXT is seen from this library. 2.2.5 is the version of x86-64's first glibc.
    let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
    REAL_DLSYM.store(found, Release);
    found
}

/// The C library's own `dlsym`, for our own look-ups.
pub fn real_dlsym() -> Option<Dlsym> {
    let real = find_real_dlsym();
    // SAFETY: not null, and the address of `dlsym`.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real) })
}

/// `dlsym`, as every object of the process finds it.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {filter}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "mov rax, qword ptr [rip + {real}@GOTPCREL]",
        "jmp qword ptr [rax]",
        "2: ret",
        filter = sym filter,
        real = sym REAL_DLSYM,
    )
}

/// A hook for what is asked for, or null: not ours, jump on.
unsafe extern "C" fn filter(handle: *mut c_void, symbol: *const c_char) -> *const c_void {
    let real = find_real_dlsym();
    // SAFETY: the caller passes a C string or null.
    let Some(symbol) = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol) }) else {
        return std::ptr::null();
    };
    // Who asks matters for these two; what they find is an export of ours or of the next in line, as without us.
    let relative = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    if relative || real.is_null() || !symbol.to_bytes().starts_with(b"cu") {
        return std::ptr::null();
    }
    let Some(row) = api::row_of_symbol(symbol) else { return std::ptr::null() };
    // SAFETY: `real` is the C library's dlsym, the arguments are the caller's own.
    let address = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real)(handle, symbol.as_ptr()) };
    if address.is_null() {
        return std::ptr::null();
    }
    life::arm();
    provider(row, address)
}

/// The hook in front of a real function just found; the function itself where all slots are taken.
fn provider(row: usize, real: *mut c_void) -> *const c_void {
    driver::learn(row, real);
    api::bind(row, real).unwrap_or_else(|| {
        life::too_many_providers(row);
        real
    })
}

/// `dlclose`, so that stacks never name a library that is gone for what now lies at its addresses. Unlike `dlopen` and
/// `dlsym` it does not ask who calls, so it may simply be called.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> i32 {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut real = REAL.load(Acquire);
    if real.is_null() {
        // SAFETY: asked for by name; RTLD_NEXT is seen from this library.
        real = real_dlsym().map_or(real, |dlsym| unsafe { dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) });
        REAL.store(real, Release);
    }
    if real.is_null() {
        return -1;
    }
    // SAFETY: the C library's `dlclose`, the caller's own handle.
    let status =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> i32>(real)(handle) };
    life::unloaded();
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
pub(super) use tail_jump;

/// Makes the exported symbol of a row: finds the hook for this caller, then jumps there.
macro_rules! export {
    ($id:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $id() {
            $crate::preload::doors::tail_jump!(
                $crate::preload::doors::route, "mov rdi, qword ptr [rsp + 56]", "mov esi, {row}";
                row = super::Row::$id as usize + 1
            )
        }
    };
}
pub(super) use export;

/// Where a call of an exported symbol goes: the hook in front of the function that the caller's own scope holds.
pub unsafe extern "C" fn route(return_address: *const c_void, row: usize) -> *const c_void {
    life::arm();
    life::wait_until_armed();
    let caller = elf::object_of(return_address);
    if let Some(hook) = routes::known(caller, row) {
        return hook;
    }
    let symbol = api::entry_point(row).symbol;
    let real = match caller {
        Some(object) => elf::definition(object, symbol),
        None => elf::anywhere(symbol),
    };
    let Some(real) = real else { return missing as *const c_void };
    let hook = provider(row, real);
    routes::remember(caller, row, hook);
    hook
}

/// What a weakly bound call gets when there is no runtime or driver to answer it: "not initialised", in both APIs.
extern "C" fn missing() -> i32 {
    3
}

/// Routes already found, by calling object: a fixed table without a lock.
mod routes {
    use super::*;
    use elf::LinkMap;

    const SIZE: usize = 1024;
    static CALLER: [AtomicPtr<c_void>; SIZE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIZE];
    static HOOK: [AtomicPtr<c_void>; SIZE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIZE];

    /// The key is unique per (object, row): link maps are far larger than the number of rows.
    fn key(caller: Option<&LinkMap>, row: usize) -> *mut c_void {
        (caller.map_or(1 << 12, |m| std::ptr::from_ref(m) as usize) + row) as *mut c_void
    }

    fn place(key: *mut c_void) -> usize {
        (key as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 10)
    }

    pub fn known(caller: Option<&LinkMap>, row: usize) -> Option<*const c_void> {
        let key = key(caller, row);
        let at = place(key);
        // The hook first: it is stored before the key that vouches for it.
        let hook = (CALLER[at].load(Acquire) == key).then(|| HOOK[at].load(Acquire))?;
        (CALLER[at].load(Acquire) == key).then_some(hook.cast_const())
    }

    pub fn remember(caller: Option<&LinkMap>, row: usize, hook: *const c_void) {
        let key = key(caller, row);
        let at = place(key);
        // A place once taken stays: no reader can see one caller's key with another's hook.
        if HOOK[at].compare_exchange(std::ptr::null_mut(), hook.cast_mut(), AcqRel, Acquire).is_ok() {
            CALLER[at].store(key, Release);
        }
    }
}
