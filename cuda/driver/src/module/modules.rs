//! Modules: they load, hold any function and variable one asks for, and do nothing but cost memory.
//!
//! A module's code takes one large page of its context's device, until it is unloaded or the context ends; a
//! library's does so in each context that uses anything of it, from then on. Code is nobody's allocation: it
//! is charged, and not in the truth log.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::status::*;
use crate::state::arena::LARGE;
use crate::state::code::{Kernel, Module};
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::memory::Kind;

/// The size of every variable: the real one is not known here.
const GLOBAL: usize = 256;
/// The bytes that a module's code takes.
const CODE: u64 = LARGE;

impl Driver {
    pub fn load_module(&mut self, out: Out<Handle>, owner: Owner) -> Res {
        let handle = self.new_handle();
        out.put(handle)?;
        self.modules.insert(handle, Module { context: owner.context, ..Module::default() });
        self.load_code(handle, owner).inspect_err(|_| drop(self.modules.remove(&handle)))
    }

    pub fn load_library(&mut self, out: Out<Handle>) -> Res {
        let handle = self.new_handle();
        out.put(handle)?;
        self.modules.insert(handle, Module::default());
        Ok(())
    }

    /// Loads the module's code into a context that uses something of it.
    pub fn load_code(&mut self, module: Handle, owner: Owner) -> Res {
        let known = self.module(module)?;
        let foreign = known.context != 0 && known.context != owner.context;
        if foreign || known.loaded.contains_key(&owner.context) {
            return Ok(());
        }
        self.charge(owner.device, CODE)?;
        if let Some(module) = self.modules.get_mut(&module) {
            module.loaded.insert(owner.context, owner.device);
        }
        Ok(())
    }

    pub fn unload(&mut self, module: Handle) -> Res {
        let gone = self.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        for at in gone.globals.into_values() {
            let _ = self.end_block("implicit", at);
        }
        for function in gone.functions.into_values() {
            self.kernels.remove(&function);
        }
        for device in gone.loaded.into_values() {
            self.uncharge(device, CODE);
        }
        Ok(())
    }

    /// Unloads what a context that ends has: its modules, and the libraries' code and variables in it. (Its
    /// blocks have ended already.)
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

    /// Returns a function by name: a module holds any that is asked for.
    pub fn function(&mut self, module: Handle, name: &str) -> Res<Handle> {
        let known = self.module(module)?.functions.get(name).copied();
        if let Some(function) = known {
            return Ok(function);
        }
        let function = self.new_handle();
        let text = CString::new(name).map_err(|_| INVALID_VALUE)?;
        self.kernels.insert(function, Kernel { module, name: text, settings: [48 << 10, -1] });
        if let Some(module) = self.modules.get_mut(&module) {
            module.functions.insert(name.to_owned(), function);
        }
        Ok(function)
    }

    /// Returns the address and size of a variable by name: a module holds any that is asked for.
    pub fn global(&mut self, module: Handle, name: &str, owner: Owner) -> Res<(Addr, usize)> {
        self.load_code(module, owner)?;
        let known = self.module(module)?;
        let context = if known.context == 0 { owner.context } else { known.context };
        let key = (context, name.to_owned());
        if let Some(&address) = known.globals.get(&key) {
            return Ok((address, GLOBAL));
        }
        let address = self.allocate("implicit", Kind::Global, GLOBAL as u64, Owner { context, ..owner })?;
        // SAFETY: a block of this size was allocated just now.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, GLOBAL) };
        if let Some(module) = self.modules.get_mut(&module) {
            module.globals.insert(key, address);
        }
        Ok((address, GLOBAL))
    }
}

/// Refuses a path that is no file.
pub fn check_file(path: In<c_char>) -> Res {
    if Path::new(&path.text()?).is_file() { Ok(()) } else { Err(FILE_NOT_FOUND) }
}

/// `CU_MODULE_LAZY_LOADING`
const LAZY: i32 = 2;

fn load_data(driver: &mut Driver, owner: Owner, out: Out<Handle>, image: In<c_void>) -> Res {
    if image.is_null() { Err(INVALID_VALUE) } else { driver.load_module(out, owner) }
}

pub fn put_variable(
    driver: &mut Driver,
    owner: Owner,
    address: Out<Addr>,
    bytes: Out<usize>,
    module: Handle,
    name: In<c_char>,
) -> Res {
    let (at, size) = driver.global(module, &name.text()?, owner)?;
    address.put_opt(at);
    bytes.put_opt(size);
    Ok(())
}

pub fn put_functions(driver: &Driver, out: Out<Handle>, room: u32, module: Handle) -> Res {
    let functions = &driver.module(module)?.functions;
    functions.values().take(room as usize).enumerate().try_for_each(|(i, &f)| out.put_at(i, f))
}

driver_api! {
    fn cuModuleLoad(driver, owner; out: Out<Handle>, path: In<c_char>) {
        check_file(path)?;
        driver.load_module(out, owner)
    }

    fn cuModuleLoadData(driver, owner; out: Out<Handle>, image: In<c_void>) {
        load_data(driver, owner, out, image)
    }

    fn cuModuleLoadDataEx(driver, owner; out: Out<Handle>, image: In<c_void>, _count: u32, _options:
        In<i32>, _values: In<Handle>) {
        load_data(driver, owner, out, image)
    }

    fn cuModuleLoadFatBinary(driver, owner; out: Out<Handle>, image: In<c_void>) {
        load_data(driver, owner, out, image)
    }

    fn cuModuleUnload(driver; module: Handle) { driver.unload(module) }

    fn cuModuleGetLoadingMode(_driver; out: Out<i32>) { out.put(LAZY) }

    fn cuModuleGetFunction(driver; out: Out<Handle>, module: Handle, name: In<c_char>) {
        out.put(driver.function(module, &name.text()?)?)
    }

    fn cuModuleGetFunctionCount(driver; out: Out<u32>, module: Handle) {
        out.put(driver.module(module)?.functions.len() as u32)
    }

    fn cuModuleEnumerateFunctions(driver; out: Out<Handle>, room: u32, module: Handle) {
        put_functions(driver, out, room, module)
    }

    fn cuModuleGetGlobal_v2(driver, owner; address: Out<Addr>, bytes: Out<usize>, module: Handle, name:
        In<c_char>) {
        put_variable(driver, owner, address, bytes, module, name)
    }
}
