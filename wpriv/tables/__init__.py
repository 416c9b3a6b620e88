"""Tables that no accountant makes: one file each, whose name a recipe gives as ``table``; its parameters stand under ``params``."""
