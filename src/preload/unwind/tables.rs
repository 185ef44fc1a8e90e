//! Unwind rules out of the tables of loaded modules (`.eh_frame_hdr`, `.eh_frame`), read where they are
//! mapped: no lock, no allocation. The only file here that knows DWARF.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, Expression, FrameDescriptionEntry, NativeEndian, Operation,
    Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow, X86_64,
};

use crate::loader::address::{self, Tables};
use crate::unwind::rules::{Kind, Rule};

type Bytes = EndianSlice<'static, NativeEndian>;
type Expr = UnwindExpression<usize>;

/// Storage for the rows of a function, which saves up to 6 registers and the return address. It lies on the
/// stack, so it is no larger than need be.
struct Function;

impl UnwindContextStorage<usize> for Function {
    type Rules = [(Register, RegisterRule<usize>); 9];
    type Stack = [UnwindTableRow<usize, Function>; 3];
}

/// Storage for the row of a signal frame, which describes 17 registers.
struct Trampoline;

impl UnwindContextStorage<usize> for Trampoline {
    type Rules = [(Register, RegisterRule<usize>); 18];
    type Stack = [UnwindTableRow<usize, Trampoline>; 2];
}

/// Returns the rule of an instruction; `None` if it lies in no known module.
pub fn rule(address: u64) -> Option<Rule> {
    let module = address::tables(address)?;
    Some(match describing(&module, address) {
        Some(entry) => read(&entry, address).unwrap_or(Rule::OTHER),
        None if !is_understood(&module) || returns_from_signal(&module, address) => Rule::OTHER,
        None => Rule::NO_CFI,
    })
}

/// The entry of the function that an address lies in, and the bytes it was read from.
struct Entry {
    section: EhFrame<Bytes>,
    bases: BaseAddresses,
    function: FrameDescriptionEntry<Bytes>,
}

/// The head of `.eh_frame_hdr`: version 1, the section's address as a 32-bit distance, a 32-bit count, and a
/// sorted table of 32-bit distances from the head. Every linker writes this form.
const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const TABLE: u64 = 12;

fn is_understood(module: &Tables) -> bool {
    module.header != 0 && (0..4).all(|i| load::<u8>(module, module.header + i) == Some(HEAD[i as usize]))
}

fn describing(module: &Tables, address: u64) -> Option<Entry> {
    if !is_understood(module) {
        return None;
    }
    let word = |at: u64| load::<u32>(module, at);
    let distance = |at: u64| Some(module.header.wrapping_add_signed(i64::from(load::<i32>(module, at)?)));
    // The last function that begins at or before the address.
    let row = |n: u64| module.header + TABLE + 8 * n;
    let (mut low, mut high) = (0, u64::from(word(module.header + 8)?));
    while low < high {
        let middle = (low + high) / 2;
        if distance(row(middle))? <= address { low = middle + 1 } else { high = middle }
    }
    let function = distance(row(low.checked_sub(1)?) + 4)?;
    // An entry (FDE) is a length and a distance back to what several share (CIE); both lie in `.eh_frame`,
    // and so do all bytes between them.
    let common = (function + 4).checked_sub(u64::from(word(function + 4)?))?;
    let end = |at: u64| Some(at + 4 + u64::from(word(at).filter(|length| *length < 0xffff_fff0)?));
    let start = function.min(common);
    let bytes = slice(module, start, end(function)?.max(end(common)?))?;
    let section = EhFrame::from(EndianSlice::new(bytes, NativeEndian));
    let bases = BaseAddresses::default().set_eh_frame(start);
    let function = section
        .fde_from_offset(&bases, ((function - start) as usize).into(), EhFrame::cie_from_offset)
        .ok()?;
    function.contains(address).then_some(Entry { section, bases, function })
}

/// Returns the rule of an entry; `None` if it says more than a rule can express.
fn read(entry: &Entry, address: u64) -> Option<Rule> {
    if entry.function.cie().return_address_register() != X86_64::RA {
        return None;
    }
    if entry.function.is_signal_trampoline() {
        return signal(entry, address);
    }
    function(entry, address)
}

#[inline(never)]
fn function(entry: &Entry, address: u64) -> Option<Rule> {
    let mut context = UnwindContext::<usize, Function>::new_in();
    let row =
        entry.function.unwind_info_for_address(&entry.section, &entry.bases, &mut context, address).ok()?;
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) => return Some(Rule::END),
        _ => return None,
    }
    if row.register(X86_64::RSP).is_some() {
        return None;
    }
    let rbp = row.register(X86_64::RBP);
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let kind = match *register {
                X86_64::RSP => Kind::Rsp,
                X86_64::RBP => Kind::Rbp,
                _ => return None,
            };
            let rbp = match rbp {
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
                // 0 stands for an unchanged register.
                Some(RegisterRule::Offset(offset)) if offset != 0 => offset,
                _ => return None,
            };
            Rule::new(kind, *offset, rbp)
        }
        CfaRule::Expression(cfa) => {
            let Some(RegisterRule::Expression(rbp)) = rbp else { return None };
            let cfa = relative(entry, cfa, X86_64::RBP, true)?;
            Rule::new(Kind::Saved, cfa, relative(entry, &rbp, X86_64::RBP, false)?)
        }
    }
}

/// Where the kernel saves the interrupted registers, from the stack pointer that the handler returns with:
/// `ucontext_t`, `uc_mcontext.gregs`.
pub mod interrupted {
    pub const RBP: u64 = 120;
    pub const RSP: u64 = 160;
    pub const PC: u64 = 168;
}

#[inline(never)]
fn signal(entry: &Entry, address: u64) -> Option<Rule> {
    let mut context = UnwindContext::<usize, Trampoline>::new_in();
    let row =
        entry.function.unwind_info_for_address(&entry.section, &entry.bases, &mut context, address).ok()?;
    let is_saved_at = |register, at: u64| match row.register(register) {
        Some(RegisterRule::Expression(e)) => relative(entry, &e, X86_64::RSP, false) == Some(at as i64),
        _ => false,
    };
    let CfaRule::Expression(cfa) = row.cfa() else { return None };
    let restores_all = relative(entry, cfa, X86_64::RSP, true) == Some(interrupted::RSP as i64)
        && is_saved_at(X86_64::RBP, interrupted::RBP)
        && is_saved_at(X86_64::RSP, interrupted::RSP)
        && is_saved_at(X86_64::RA, interrupted::PC);
    restores_all.then_some(Rule::SIGNAL)
}

/// Returns the offset of an expression that is `register + offset`, or `*(register + offset)` if
/// `dereferenced`.
fn relative(entry: &Entry, expression: &Expr, register: Register, dereferenced: bool) -> Option<i64> {
    let expression: Expression<Bytes> = expression.get(&entry.section).ok()?;
    let mut operations = expression.operations(entry.function.cie().encoding());
    let offset = match operations.next().ok()?? {
        Operation::RegisterOffset { register: base, offset, .. } if base == register => offset,
        _ => return None,
    };
    if dereferenced {
        match operations.next().ok()?? {
            Operation::Deref { size: 8, space: false, .. } => {}
            _ => return None,
        }
    }
    operations.next().ok()?.is_none().then_some(offset)
}

/// True at the trampoline of a signal handler in a C library without a table entry for it: `mov $15, %rax;
/// syscall`.
fn returns_from_signal(module: &Tables, address: u64) -> bool {
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    // The address is that of the byte before the return address.
    (1..=9).all(|i| load::<u8>(module, address + i) == Some(CODE[i as usize - 1]))
}

/// Reads a number in a module's tables.
fn load<T: Copy>(module: &Tables, at: u64) -> Option<T> {
    let end = at.checked_add(size_of::<T>() as u64)?;
    if at < module.start || end > module.end {
        return None;
    }
    // SAFETY: between the bounds of a mapped module, at an address that one of its tables names.
    Some(unsafe { std::ptr::with_exposed_provenance::<T>(at as usize).read_unaligned() })
}

/// Returns bytes of a module's tables.
fn slice(module: &Tables, start: u64, end: u64) -> Option<&'static [u8]> {
    if start < module.start || end > module.end || start > end {
        return None;
    }
    // SAFETY: inside `.eh_frame` of a mapped module, read-only. It stays mapped while a frame of the calling
    // thread lies in its code, which is longer than anything here keeps it.
    Some(unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start as usize), (end - start) as usize)
    })
}
