//! Native names by blazesym, for the reader only: the preload never links it.

use std::collections::HashMap;
use std::path::Path;

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use leaktrace_core::format::tables::Module;
use leaktrace_core::symbols::{Function, Symboliser};

/// Looks functions up in the object files on this machine, if they are still those that ran.
pub struct Files {
    symbolizer: Symbolizer,
    /// Whether the file at a path is the one that ran, by (path, build id).
    unchanged: HashMap<(String, Vec<u8>), bool>,
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
    /// A file whose build id differs, or that has none to compare, could give wrong names: better none.
    fn is_unchanged(&mut self, module: &Module) -> bool {
        let key = (module.path.clone(), module.build_id.clone());
        *self.unchanged.entry(key).or_insert_with(|| {
            !module.build_id.is_empty()
                && Path::new(&module.path).is_absolute()
                // A pipe of that name would be waited for.
                && std::fs::metadata(&module.path).is_ok_and(|m| m.is_file())
                && matches!(read_elf_build_id(&module.path), Ok(Some(id)) if *id == module.build_id[..])
        })
    }
}

impl Files {
    /// The functions at addresses, of a file as it is to be read.
    fn named(&self, file: &Elf, addresses: &[u64]) -> Vec<Vec<Function>> {
        match self.symbolizer.symbolize(&Source::Elf(file.clone()), Input::VirtOffset(addresses)) {
            Ok(found) => found.iter().map(named).collect(),
            Err(_) => vec![Vec::new(); addresses.len()],
        }
    }
}

impl Symboliser for Files {
    fn functions(&mut self, module: &Module, addresses: &[u64]) -> Vec<Vec<Function>> {
        if !self.is_unchanged(module) {
            return vec![Vec::new(); addresses.len()];
        }
        let mut file = Elf::new(&module.path);
        let mut found = self.named(&file, addresses);
        // A function in several pieces (hot and cold) is known by the first of them only in the debugging information; the
        // symbol table has each.
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

/// In a stripped file the nearest exported symbol may be of another function, far before the address.
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
