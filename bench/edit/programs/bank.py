"""Accounts that money is moved between."""


class InsufficientFunds(Exception):
    """There is less money than is wanted."""


class Account:
    """Money of one owner, in cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        self.balance += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount):
        self.balance -= amount
        self.history.append(("withdraw", amount))

    def __repr__(self):
        return "Account(%s, %d)" % (self.owner, self.balance)


class Bank:
    def __init__(self):
        self.accounts = {}

    def open(self, owner):
        account = Account(owner)
        self.accounts[owner] = account
        return account

    def find(self, owner):
        return self.accounts[owner]

    def transfer(self, source, target, amount):
        a = self.find(source)
        b = self.find(target)
        a.withdraw(amount)
        b.deposit(amount)

    def richest(self):
        best = None
        for account in self.accounts.values():
            if best is None or account.balance > best.balance:
                best = account
        return best
