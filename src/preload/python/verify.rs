//! Whether the stack of a thread is what the layout says: read through the kernel, where a wrong address is an error and no
//! crash. Looks, and changes nothing.

use std::ptr;

use crate::python::cpython::Cpython;
use crate::python::cpython::read;
use crate::python::layout::Kind;
use crate::python::layout::OB_TYPE;
use crate::python::layout::SHIM_OWNER;
use crate::python::layout::VAR_SIZE;

/// `None`: there is no frame to look at.
pub(crate) fn stack_is_plausible(cpython: &Cpython, thread: usize) -> Result<Option<()>, ()> {
    let layout = &cpython.layout;
    let mut frame = peek(thread + layout.thread_frame)?;
    if let (Some(at), true) = (layout.cframe, frame != 0) {
        frame = peek(frame + at)?;
    }
    let mut seen = None;
    for _ in 0..64 {
        if frame == 0 {
            break;
        }
        let back = peek(frame + layout.frame_back)?;
        let byte = |at: usize| peek(frame + at).map(|word| word as u8);
        let shim = layout.kind == Kind::Shimmed && byte(layout.frame_flag)? >= SHIM_OWNER;
        if !shim {
            let code = peek(frame + layout.frame_code)? & !7;
            let is = |object: usize, of: usize| Ok(peek(object + OB_TYPE)? == of);
            let begin = code + layout.code_size;
            let instr = peek(frame + layout.frame_instr)?;
            let inside = match layout.kind {
                Kind::Object => (-1..1 << 28).contains(&(instr as i32)),
                // One unit before the first instruction is "not begun".
                _ => {
                    let end = begin + 2 * peek(code + VAR_SIZE)?;
                    (begin - 2..end).contains(&instr)
                }
            };
            let right = inside
                && is(code, cpython.code_type)?
                && is(peek(code + layout.code_file)?, cpython.str_type)?
                && is(peek(code + layout.code_name)?, cpython.str_type)?
                && is(peek(code + layout.code_lines)?, cpython.bytes_type)?;
            if !right {
                return Err(());
            }
            seen = Some(());
        }
        frame = back;
    }
    Ok(seen)
}

/// A word of our own memory, read by the kernel; an error if nothing is mapped there.
fn peek(address: usize) -> Result<usize, ()> {
    let mut word = 0usize;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<usize>() };
    let remote = libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: size_of::<usize>() };
    // SAFETY: writes into `word` only; the remote side is read by the kernel, which checks it.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if n == size_of::<usize>() as isize {
        return Ok(word);
    }
    // SAFETY: plain errno access.
    match unsafe { *libc::__errno_location() } {
        libc::EFAULT => Err(()),
        // The call is forbidden here (a sandbox). The tables and the interpreter's own description have to do.
        // SAFETY: the layout passed every other check.
        _ => Ok(unsafe { read(ptr::with_exposed_provenance(address), 0) }),
    }
}
