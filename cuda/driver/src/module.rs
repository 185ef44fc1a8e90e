//! Modules: they load, hold any function and variable one asks for, and do nothing but cost memory.
//!
//! A module's code takes one large page of its context's device, until it is unloaded or the context ends; a library's
//! does so in each context that uses anything of it, from then on. Code is nobody's allocation: it is charged, and not
//! in the truth log.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use crate::abi::{Addr, Handle, In, Out};
use crate::arena::LARGE;
use crate::blocks::Kind;
use crate::error::*;
use crate::state::{Core, Here, here, with};

/// A module, or a library (which belongs to no context).
#[derive(Default)]
pub struct Module {
    pub context: Handle,
    /// The contexts its code is in, and their devices.
    loaded: BTreeMap<Handle, i32>,
    functions: BTreeMap<String, Handle>,
    /// Each context has its own.
    globals: BTreeMap<(Handle, String), Addr>,
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
/// What a module's code takes.
const CODE: u64 = LARGE;

impl Core {
    pub fn load_module(&mut self, out: Out<Handle>, at: Here) -> Res {
        let handle = self.handle();
        out.put(handle)?;
        self.modules.insert(handle, Module { context: at.context, ..Module::default() });
        self.bring_in(handle, at).inspect_err(|_| drop(self.modules.remove(&handle)))
    }

    pub fn load_library(&mut self, out: Out<Handle>) -> Res {
        let handle = self.handle();
        out.put(handle)?;
        self.modules.insert(handle, Module::default());
        Ok(())
    }

    /// Something of the module is used in a context: its code must be there.
    pub fn bring_in(&mut self, module: Handle, at: Here) -> Res {
        let known = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let elsewhere = known.context != 0 && known.context != at.context;
        if elsewhere || known.loaded.contains_key(&at.context) {
            return Ok(());
        }
        self.charge(at.device, CODE)?;
        if let Some(module) = self.modules.get_mut(&module) {
            module.loaded.insert(at.context, at.device);
        }
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
        for device in gone.loaded.into_values() {
            self.uncharge(device, CODE);
        }
        Ok(())
    }

    /// A context ends: its modules go, and the libraries' code and variables in it. (Its blocks have ended already.)
    pub fn end_modules_of(&mut self, context: Handle) {
        let modules: Vec<_> = self.modules.iter().filter(|m| m.1.context == context).map(|m| *m.0).collect();
        let mut freed = Vec::new();
        for module in self.modules.values_mut() {
            module.globals.retain(|variable, _| variable.0 != context);
            freed.extend(module.loaded.remove(&context));
        }
        for device in freed {
            self.uncharge(device, CODE);
        }
        for module in modules {
            let _ = self.unload(module);
        }
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
        self.bring_in(module, at)?;
        let owner = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let context = if owner.context == 0 { at.context } else { owner.context };
        let key = (context, name.to_owned());
        if let Some(&address) = owner.globals.get(&key) {
            return Ok((address, GLOBAL));
        }
        let address = self.allocate("implicit", Kind::Global, GLOBAL as u64, Here { context, ..at })?;
        crate::copy::carry_out(crate::copy::Plan::Zero, address, address, GLOBAL);
        if let Some(module) = self.modules.get_mut(&module) {
            module.globals.insert(key, address);
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
        core.load_module(out, at)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData(out: Out<Handle>, image: In<c_void>) -> Status {
    distinct!(cuModuleLoadData);
    here(|core, at| if image.is_null() { Err(INVALID_VALUE) } else { core.load_module(out, at) })
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
