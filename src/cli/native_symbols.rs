//! Names of native functions, by blazesym. Knows no recording but the modules it is asked about.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use parking_lot::Mutex;

use leaktrace_core::format::tables::Module;
use leaktrace_core::symbols::{Function, Symboliser};

/// A module by its path and build id: addresses in it mean the same in every recording.
type ModuleKey = (String, Vec<u8>);

/// The functions at the addresses of one module that were looked up.
type NamesAt = HashMap<u64, Vec<Function>>;

/// The names that were looked up, shared by all threads that read recordings: ranks of one run call the same
/// functions.
#[derive(Clone, Default)]
pub struct SharedNames(Arc<Mutex<HashMap<ModuleKey, NamesAt>>>);

thread_local! {
    /// blazesym's caches cannot be shared between threads.
    static FILES: RefCell<Files> = RefCell::default();
}

impl Symboliser for SharedNames {
    fn functions(&mut self, module: &Module, addresses: &[u64]) -> Vec<Vec<Function>> {
        let key = (module.path.clone(), module.build_id.clone());
        let missing: Vec<u64> = {
            let all = self.0.lock();
            let known = all.get(&key);
            addresses.iter().filter(|a| !known.is_some_and(|known| known.contains_key(a))).copied().collect()
        };
        // Not under the lock: this reads files. Two threads may look up the same name.
        let found = match missing.is_empty() {
            true => Vec::new(),
            false => FILES.with_borrow_mut(|files| files.functions(module, &missing)),
        };
        let mut all = self.0.lock();
        let known = all.entry(key).or_default();
        known.extend(missing.into_iter().zip(found));
        addresses.iter().map(|address| known.get(address).cloned().unwrap_or_default()).collect()
    }
}

/// Looks functions up in the object files on this machine, if they are still those that ran.
struct Files {
    symbolizer: Symbolizer,
    /// Whether the file of a module is the one that ran.
    unchanged: HashMap<ModuleKey, bool>,
}

impl Default for Files {
    fn default() -> Files {
        let symbolizer = Symbolizer::builder()
            .enable_code_info(true)
            .enable_inlined_fns(true)
            .enable_demangling(true)
            .build();
        Files { symbolizer, unchanged: HashMap::new() }
    }
}

impl Files {
    /// Returns true if the module's file is the one that ran: another, or one without a build id, could give
    /// wrong names.
    fn is_unchanged(&mut self, module: &Module) -> bool {
        let key = (module.path.clone(), module.build_id.clone());
        *self.unchanged.entry(key).or_insert_with(|| {
            !module.build_id.is_empty()
                && Path::new(&module.path).is_absolute()
                // Reading a pipe would block.
                && std::fs::metadata(&module.path).is_ok_and(|m| m.is_file())
                && matches!(read_elf_build_id(&module.path), Ok(Some(id)) if *id == module.build_id[..])
        })
    }

    /// Looks up the functions at addresses of one file.
    fn named(&self, file: &Elf, addresses: &[u64]) -> Vec<Vec<Function>> {
        match self.symbolizer.symbolize(&Source::Elf(file.clone()), Input::VirtOffset(addresses)) {
            Ok(found) => found.iter().map(named).collect(),
            Err(_) => vec![Vec::new(); addresses.len()],
        }
    }

    /// Looks up the functions at addresses of one module.
    fn functions(&mut self, module: &Module, addresses: &[u64]) -> Vec<Vec<Function>> {
        if !self.is_unchanged(module) {
            return vec![Vec::new(); addresses.len()];
        }
        let mut file = Elf::new(&module.path);
        let mut found = self.named(&file, addresses);
        // A function in several pieces (hot and cold) is known by the first of them only in the debugging
        // information; the symbol table has each.
        let missed: Vec<usize> = (0..found.len()).filter(|&i| found[i].is_empty()).collect();
        let again: Vec<u64> = missed.iter().map(|&i| addresses[i]).collect();
        if !again.is_empty() {
            file.debug_syms = false;
            for (i, functions) in missed.into_iter().zip(self.named(&file, &again)) {
                found[i] = functions;
            }
        }
        found
    }
}

fn named(found: &Symbolized<'_>) -> Vec<Function> {
    match found {
        Symbolized::Sym(sym) if lies_inside(sym) => {
            let inlined = sym.inlined.iter().rev().map(|f| function(&f.name, f.code_info.as_ref()));
            inlined.chain([function(&sym.name, sym.code_info.as_deref())]).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns true if the address is inside the symbol: in a stripped file the nearest exported one may be
/// another function.
fn lies_inside(sym: &Sym<'_>) -> bool {
    sym.size.is_some_and(|size| (sym.offset as u64) < size as u64)
}

fn function(name: &str, code: Option<&CodeInfo<'_>>) -> Function {
    Function {
        name: name.to_owned(),
        file: code.map(|c| c.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|c| c.line),
    }
}
