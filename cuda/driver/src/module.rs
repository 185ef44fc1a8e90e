//! Modules: they load, hold any function and variable one asks for, and do nothing.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use crate::abi::{Addr, Handle, In, Out};
use crate::blocks::Kind;
use crate::error::*;
use crate::state::{Core, Here, here, with};

/// A module, or a library (which belongs to no context).
pub struct Module {
    pub context: Handle,
    functions: BTreeMap<String, Handle>,
    globals: BTreeMap<String, Addr>,
}

/// A function of a module, or a kernel of a library: the same thing here.
pub struct Kernel {
    pub module: Handle,
    pub name: CString,
    /// Dynamic shared memory opted in to, and the preferred carve-out.
    pub settings: [i32; 2],
}

/// The size of every variable: nothing here knows the real one.
const GLOBAL: usize = 256;

impl Core {
    pub fn load(&mut self, out: Out<Handle>, context: Handle) -> Res {
        let handle = self.handle();
        out.put(handle)?;
        let (functions, globals) = (BTreeMap::new(), BTreeMap::new());
        self.modules.insert(handle, Module { context, functions, globals });
        Ok(())
    }

    pub fn unload(&mut self, module: Handle) -> Res {
        let gone = self.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        for at in gone.globals.into_values() {
            let _ = self.end("implicit", at);
        }
        for function in gone.functions.into_values() {
            self.kernels.remove(&function);
        }
        Ok(())
    }

    pub fn function(&mut self, module: Handle, name: &str) -> Res<Handle> {
        let known = self.modules.get(&module).ok_or(INVALID_HANDLE)?.functions.get(name).copied();
        if let Some(function) = known {
            return Ok(function);
        }
        let function = self.handle();
        let text = CString::new(name).map_err(|_| INVALID_VALUE)?;
        self.kernels.insert(function, Kernel { module, name: text, settings: [48 << 10, -1] });
        if let Some(module) = self.modules.get_mut(&module) {
            module.functions.insert(name.to_owned(), function);
        }
        Ok(function)
    }

    pub fn global(&mut self, module: Handle, name: &str, at: Here) -> Res<(Addr, usize)> {
        let owner = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        if let Some(&address) = owner.globals.get(name) {
            return Ok((address, GLOBAL));
        }
        let address = self.allocate("implicit", Kind::Global, GLOBAL as u64, at)?;
        crate::copy::carry_out(crate::copy::Plan::Zero, address, address, GLOBAL);
        if let Some(module) = self.modules.get_mut(&module) {
            module.globals.insert(name.to_owned(), address);
        }
        Ok((address, GLOBAL))
    }
}

pub fn readable(path: In<c_char>) -> Res {
    if Path::new(&path.text()?).is_file() { Ok(()) } else { Err(FILE_NOT_FOUND) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoad(out: Out<Handle>, path: In<c_char>) -> Status {
    distinct!(cuModuleLoad);
    here(|core, at| {
        readable(path)?;
        core.load(out, at.context)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData(out: Out<Handle>, image: In<c_void>) -> Status {
    distinct!(cuModuleLoadData);
    here(|core, at| if image.is_null() { Err(INVALID_VALUE) } else { core.load(out, at.context) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadDataEx(
    out: Out<Handle>,
    image: In<c_void>,
    _count: u32,
    _options: In<i32>,
    _values: In<Handle>,
) -> Status {
    distinct!(cuModuleLoadDataEx);
    cuModuleLoadData(out, image)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadFatBinary(out: Out<Handle>, image: In<c_void>) -> Status {
    distinct!(cuModuleLoadFatBinary);
    cuModuleLoadData(out, image)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: Handle) -> Status {
    distinct!(cuModuleUnload);
    with(|core| core.unload(module))
}

/// `CU_MODULE_LAZY_LOADING`
const LAZY: i32 = 2;

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetLoadingMode(out: Out<i32>) -> Status {
    distinct!(cuModuleGetLoadingMode);
    with(|_| out.put(LAZY))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetFunction(out: Out<Handle>, module: Handle, name: In<c_char>) -> Status {
    distinct!(cuModuleGetFunction);
    with(|core| out.put(core.function(module, &name.text()?)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetFunctionCount(out: Out<u32>, module: Handle) -> Status {
    distinct!(cuModuleGetFunctionCount);
    with(|core| out.put(core.modules.get(&module).ok_or(INVALID_HANDLE)?.functions.len() as u32))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleEnumerateFunctions(out: Out<Handle>, room: u32, module: Handle) -> Status {
    distinct!(cuModuleEnumerateFunctions);
    with(|core| {
        let functions = &core.modules.get(&module).ok_or(INVALID_HANDLE)?.functions;
        functions.values().take(room as usize).enumerate().try_for_each(|(i, &f)| out.put_at(i, f))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetGlobal_v2(
    at: Out<Addr>,
    bytes: Out<usize>,
    module: Handle,
    name: In<c_char>,
) -> Status {
    distinct!(cuModuleGetGlobal_v2);
    here(|core, place| {
        let (address, size) = core.global(module, &name.text()?, place)?;
        at.put_opt(address);
        bytes.put_opt(size);
        Ok(())
    })
}
